"""Results as figures that a paper could print: one column wide, vectors, colours that everybody can tell apart.

Each function draws a result of this package on ``axes``, or on new ones, and returns the axes; :func:`save` writes PDF,
SVG or PNG. Needs matplotlib.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Optional

from ._native import Error
from .sources import Path

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: The width of a column, in inches.
WIDTH_IN = 3.4
#: Okabe and Ito's colours, for all kinds of colour vision.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#000000")

_STYLE: dict[str, Any] = {
    "figure.figsize": (WIDTH_IN, WIDTH_IN * 0.62),
    "figure.constrained_layout.use": True,
    "font.size": 8,
    "axes.titlesize": 8,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "lines.linewidth": 1.2,
    "pdf.fonttype": 42,
    "svg.fonttype": "none",
    "svg.hashsalt": "isonomia",
    "savefig.dpi": 300,
}


@contextmanager
def style() -> Iterator[None]:
    """The style of these plots, for plots of one's own."""
    import matplotlib
    from cycler import cycler

    settings: Any = {**_STYLE, "axes.prop_cycle": cycler(color=COLOURS)}
    with matplotlib.rc_context(settings):
        yield


def allocation(result: Mapping[str, Any], axes: Optional[Axes] = None) -> Axes:
    """Each application's share beside its fair share; see :func:`isonomia.allocate`."""
    with style():
        axes = _axes(axes)
        apps = result["apps"]
        places = range(len(apps))
        fair, share = [app["fair_share"] for app in apps], [app["share"] for app in apps]
        axes.bar([at - 0.2 for at in places], fair, 0.4, label="fair share", color="#BBBBBB")
        axes.bar([at + 0.2 for at in places], share, 0.4, label="share", color=COLOURS[0])
        axes.set_xticks(list(places), [app["name"] for app in apps])
        axes.set_ylabel("part of each target")
        axes.legend()
    return axes


def schedule(result: Mapping[str, Any], axes: Optional[Axes] = None) -> Axes:
    """Each application's stretch; see :func:`isonomia.plan_schedule`."""
    with style():
        axes = _axes(axes)
        apps = result["apps"]
        axes.bar([app["id"] for app in apps], [app["stretch"] for app in apps], color=COLOURS[0])
        axes.axhline(1, color="black", linewidth=0.6)
        axes.set_xlabel("application")
        axes.set_ylabel(f"stretch ({result['policy']})")
    return axes


def packs(result: Mapping[str, Any], axes: Optional[Axes] = None) -> Axes:
    """When each pack runs on which I/O node; see :func:`isonomia.plan_pack`. Dark is the time without contention."""
    with style():
        axes = _axes(axes)
        for at, pack in enumerate(result["packs"]):
            row, begin = pack["io_node"], pack["begin_s"]
            axes.barh(row, pack["time_s"], left=begin, height=0.8, color=COLOURS[4], edgecolor="white")
            axes.barh(row, pack["alone_s"], left=begin, height=0.8, color=COLOURS[0], edgecolor="white")
            axes.text(begin + pack["alone_s"] / 2, row, str(at), ha="center", va="center", color="white", clip_on=True)
        axes.set_yticks(range(result["io_nodes"]))
        axes.set_xlabel("time [s]")
        axes.set_ylabel("I/O node")
    return axes


def throughput(outcome: Mapping[str, Any], axes: Optional[Axes] = None) -> Axes:
    """Each job's throughput over time, of ``simulate(..., slices=True)`` at request level."""
    if "slices" not in outcome:
        raise Error("there are no slices in this outcome (allowed: one of a run at request level with `slices=True`)")
    with style():
        axes = _axes(axes)
        slice_s = outcome["slice_ns"] / 1e9
        for job in outcome["jobs"]:
            volumes = [row["bytes"] for row in outcome["slices"] if row["job"] == job["job"]]
            edges = [at * slice_s for at in range(len(volumes) + 1)]
            axes.stairs([volume / slice_s / 2**20 for volume in volumes], edges, baseline=None, label=job["job"])
        axes.set_xlabel("time [s]")
        axes.set_ylabel("throughput [MiB/s]")
        axes.set_ylim(bottom=0)
        axes.legend()
    return axes


def slowdowns(outcomes: Mapping[str, Mapping[str, Any]], axes: Optional[Axes] = None) -> Axes:
    """How much I/O is slowed down, as a distribution over jobs or applications, for each of the named outcomes."""
    with style():
        axes = _axes(axes)
        for name, outcome in outcomes.items():
            values = sorted(_slowdowns(outcome))
            if not values:
                raise Error(f"outcome {name!r} has no slowdown (allowed: a fluid run, or one with `slowdown = true`)")
            parts = [(at + 1) / len(values) for at in range(len(values))]
            axes.step([values[0], *values], [0.0, *parts], where="post", label=name)
        axes.set_xlabel("slowdown against alone")
        axes.set_ylabel("part of applications")
        axes.set_ylim(0, 1.02)
        axes.legend()
    return axes


def sweep(result: Mapping[str, Any], x: str, y: str, *, by: Sequence[str] = (), axes: Optional[Axes] = None) -> Axes:
    """Column ``y`` over setting ``x`` of a sweep, a line for each combination of ``by``; see :func:`isonomia.frame`."""
    from .frames import frame

    table = frame(result)
    for column in (x, y, *by):
        if column not in table:
            raise Error(f"column {column!r} is not in this sweep (allowed: {', '.join(map(str, table.columns))})")
    with style():
        axes = _axes(axes)
        groups = table.groupby(list(by), sort=False) if by else [((), table)]
        for key, rows in groups:
            mean = rows.groupby(x, sort=False)[y].mean()
            places, label = [_number(value) for value in mean.index], ", ".join(map(str, key))
            axes.plot(places, mean.to_numpy(), marker="o", markersize=3, label=label)
        axes.set_xlabel(x)
        axes.set_ylabel(y)
        if by:
            axes.legend(title=", ".join(by), loc="upper left", bbox_to_anchor=(1, 1))
    return axes


def save(axes: Axes, path: Path) -> None:
    """Writes the figure of ``axes``; the ending says what: .pdf, .svg, or .png."""
    from matplotlib.figure import Figure

    with style():
        # matplotlib puts the time into files unless it is told not to.
        date = {"png": {}, "pdf": {"CreationDate": None}, "svg": {"Date": None}}
        figure = axes.get_figure()
        ending = str(path).rsplit(".", 1)[-1].lower()
        if not isinstance(figure, Figure) or ending not in date:
            raise Error(f"{path}: what to write? (allowed: .pdf, .svg, .png)")
        figure.savefig(path, metadata=date[ending])


def _axes(axes: Optional[Axes]) -> Axes:
    if axes is not None:
        return axes
    from matplotlib import pyplot

    return pyplot.subplots()[1]


def _slowdowns(outcome: Mapping[str, Any]) -> Iterator[float]:
    for app in outcome.get("applications", ()):
        if app["phases"] > 0:
            yield app["io_slowdown"]
    for job in outcome.get("jobs", ()):
        if job["slowdown"] is not None and math.isfinite(job["slowdown"]):
            yield job["slowdown"]


def _number(text: Any) -> Any:
    try:
        return float(text)
    except ValueError:
        return text
