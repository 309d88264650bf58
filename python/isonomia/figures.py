"""The data of reproduced papers as figures that a paper could print.

``python3 -m isonomia.figures DIR`` draws every item that ``isonomia reproduce`` left in ``DIR`` or below it: from the
item's CSV, as its JSON says. Shown are means over seeds with 95 % confidence intervals, rows of one seed averaged
before; the paper's values are marked. Needs matplotlib.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path as File
from typing import TYPE_CHECKING, Any, Literal, Optional, Union

from . import figure_lines, figure_ticks
from ._native import Error
from .plots import COLOURS, WIDTH_IN, save, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Value = Union[float, str]
#: What is drawn at one position: the mean and half the width of its interval, which may be nothing.
Point = tuple[float, float]

#: Student's t for 95 %, by degrees of freedom from 1 on, and that of a normal distribution, which it becomes.
_T_95 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip
_NORMAL_95 = 1.959_963_985
_MARKERS = "osD^v<>P"
#: Lines all along an axis: of what is no value of the paper's, and of what is.
_DASH: tuple[Literal["--"], Literal[":"]] = ("--", ":")
#: Without yellow, which is hardly seen as a line on white.
_COLOURS = (*(colour for colour in COLOURS if colour != "#F0E442"), "#999999")
#: With more positions than this an interval is a band, and not a whisker at each position.
_WHISKERS_MAX = 16
#: With more names than this along an axis they stand beside it, with bars that lie.
_UPRIGHT_MAX = 8
#: Inches: an upright bar, a lying one, the name of some, what they need beside them, a line of the legend, a letter of
#: it, its sample.
_BAR_IN, _LYING_IN, _NAME_IN, _BESIDE_IN, _LINE_IN, _LETTER_IN, _SAMPLE_IN = 0.16, 0.1, 0.15, 0.9, 0.145, 0.052, 0.42
#: A bar this many times as long as all others but a tenth is cut off, with its value written on it; the axis then
#: goes this many times beyond the others.
_OUTLYING, _BEYOND = 4.0, 1.25
#: What numbers along an axis may rise by, but for powers of ten.
_STEPS = (1, 2, 2.5, 5, 10)
#: What is left free beyond the values of a logarithmic axis, as a part of it.
_MARGIN = 0.06


def draw(rows: Sequence[Mapping[str, str]], chart: Mapping[str, Any], axes: Optional[Axes] = None) -> Axes:
    """Draws one chart of an item: ``rows`` are those of its CSV, ``chart`` is one of the ``charts`` in its JSON."""
    with style():
        series = _series(rows, chart)
        if not series:
            raise Error(f"chart {chart['title']!r}: no row is left (columns: {', '.join(rows[0]) if rows else 'none'})")
        is_bars = chart["kind"] == "bars"
        positions = list(dict.fromkeys(position for points in series.values() for position in points))
        lying = is_bars and len(positions) > _UPRIGHT_MAX and any(isinstance(position, str) for position in positions)
        if axes is None:
            size = (len(positions), len(series)) if is_bars else (0, 0)
            axes = _axes(*size, lying, _legend_lines(series, chart))
        if is_bars:
            _bars(axes, series, positions, chart, lying)
        else:
            _lines(axes, series, chart)
        axes.set_title(chart["title"], loc="left", wrap=True)
        (axes.set_ylabel if lying else axes.set_xlabel)(chart["x"]["label"])
        (axes.set_xlabel if lying else axes.set_ylabel)(chart["y"]["label"])
        _legend(axes, series, chart)
        # What fits along the axes is seen when all else is there.
        _scale(axes, "x" if lying else "y", chart["y"]["scale"])
        if is_bars and not lying:
            figure_ticks.name_positions(axes, [_text(position) for position in positions])
        elif not is_bars:
            _number_x(axes, series, chart)
    return axes


def draw_item(item: File, formats: Sequence[str] = ("png", "svg")) -> list[File]:
    """Draws all charts of the item whose JSON file this is, beside it; gives the files."""
    from matplotlib import pyplot

    found = json.loads(item.read_text(encoding="utf-8"))
    with item.with_suffix(".csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    files = []
    for chart in found["charts"]:
        axes = draw(rows, chart)
        for ending in formats:
            name = item.stem + (f"-{chart['name']}" if chart["name"] else "")
            files.append(item.with_name(f"{name}.{ending}"))
            save(axes, files[-1])
        pyplot.close(axes.figure)  # type: ignore[arg-type]
    return files


def items(directory: File) -> Iterator[File]:
    """The JSON files of items in ``directory`` and below it."""
    for path in sorted(directory.rglob("*.json")):
        if path.with_suffix(".csv").exists() and "charts" in json.loads(path.read_text(encoding="utf-8")):
            yield path


def interval(values: Sequence[float]) -> Point:
    """The mean of one value for each seed, and half the width of its 95 % interval; nothing for a single one."""
    mean = sum(values) / len(values)
    if len(values) < 2:
        return mean, 0.0
    variance = sum((value - mean) ** 2 for value in values) / (len(values) - 1)
    return mean, _student_t_95(len(values) - 1) * math.sqrt(variance / len(values))


def _student_t_95(degrees: int) -> float:
    """Half the width of a 95 % interval in standard errors, as ``crates/reproduce/src/interval.rs`` has it: beyond the table the
    expansion of Cornish and Fisher."""
    if degrees <= len(_T_95):
        return _T_95[degrees - 1]
    z = _NORMAL_95
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / degrees + second / degrees**2 + third / degrees**3


def _series(rows: Sequence[Mapping[str, str]], chart: Mapping[str, Any]) -> dict[Value, dict[Value, Point]]:
    """Points by line (or bar of a group) and position, in the order in which they first come."""
    only = [(column, {_value(each) for each in values}) for column, values in chart["only"]]
    x, y, by, bins = chart["x"]["column"], chart["y"]["column"], chart["by"], chart["bins"]
    found: dict[Value, dict[Value, dict[Value, list[float]]]] = {}
    for row in rows:
        if any(_value(row[column]) not in values for column, values in only):
            continue
        position = _value(row[x])
        if bins is not None:
            width, last = bins
            if not isinstance(position, float) or position >= last:
                continue
            position = (math.floor(position / width) + 0.5) * width
        line = _value(row[by]) if by else ""
        if row[y] == "":
            # Nothing is known there.
            continue
        # A row without a seed is one of its own position.
        seed = _value(row.get("seed", ""))
        found.setdefault(line, {}).setdefault(position, {}).setdefault(seed, []).append(float(row[y]))
    means = {
        line: {
            position: interval([sum(values) / len(values) for values in seeds.values()])
            for position, seeds in positions.items()
        }
        for line, positions in found.items()
    }
    return means


def _lines(axes: Axes, series: Mapping[Value, Mapping[Value, Point]], chart: Mapping[str, Any]) -> None:
    positions = sorted({position for points in series.values() for position in points if isinstance(position, float)})
    is_log = chart["x"]["scale"] != "linear"
    colours = {}
    ranks, steps = figure_lines.ranks(series, chart), figure_lines.steps(series, chart, positions)
    for at, (name, points) in enumerate(series.items()):
        colour, marker = _COLOURS[at % len(_COLOURS)], _MARKERS[at % len(_MARKERS)]
        (rank, count), step = ranks[at], steps[at]
        dash: Any = figure_lines.dashes(rank, count) if rank else ("-", "--", ":")[at // len(_COLOURS) % 3]
        colours[name] = colour
        xs = sorted(position for position in points if isinstance(position, float))
        means, halves = [points[position][0] for position in xs], [points[position][1] for position in xs]
        if len(xs) > _WHISKERS_MAX:
            axes.plot(xs, means, color=colour, linestyle=dash, label=_text(name))
            low, high = ([m + sign * h for m, h in zip(means, halves)] for sign in (-1, 1))
            axes.fill_between(xs, low, high, color=colour, alpha=0.2, linewidth=0)
        else:
            apart = [
                x * (positions[-1] / positions[0]) ** step if is_log else x + step * (positions[-1] - positions[0]) for x in xs
            ]
            axes.errorbar(
                apart, means, _whiskers(halves), color=colour, linestyle=dash, marker=marker, markersize=3, capsize=2,
                elinewidth=0.8, label=_text(name),
            )  # fmt: skip
    for mark in chart["paper"]:
        colour = "black" if mark["of"] is None else colours.get(_value(mark["of"]), "black")
        if mark["x"] is None:
            axes.axhline(mark["y"], color=colour, linestyle=_DASH[_is_papers(mark)], linewidth=1, zorder=1)
        else:
            x = _value(mark["x"])
            axes.plot(
                [x], [mark["y"]], "*", color=colour, markersize=8, markeredgecolor="black", markeredgewidth=0.5, zorder=4
            )
    if is_log:
        axes.set_xscale("log", base=2 if chart["x"]["scale"] == "log2" else 10)


def _number_x(axes: Axes, series: Mapping[Value, Mapping[Value, Point]], chart: Mapping[str, Any]) -> None:
    """Numbers along the x axis of lines: at the positions of the data and of the paper's values, but not of bins."""
    from matplotlib import ticker

    found = {position for points in series.values() for position in points if isinstance(position, float)}
    found |= {float(mark["x"]) for mark in chart["paper"] if mark["x"] is not None}
    positions = sorted(found)
    if chart["x"]["scale"] != "linear" or (chart["bins"] is None and len(positions) <= figure_ticks.EACH_MAX):
        figure_ticks.number_positions(axes, positions, _number)
        return
    is_whole = all(position.is_integer() for position in positions)
    locators = [ticker.MaxNLocator(most, integer=is_whole, steps=_STEPS) for most in ("auto", 6, 4)]
    figure_ticks.thin_out(axes, "x", locators)


def _bars(
    axes: Axes,
    series: Mapping[Value, Mapping[Value, Point]],
    positions: Sequence[Value],
    chart: Mapping[str, Any],
    lying: bool,
) -> None:
    width = 0.8 / len(series)
    # Where fewer bars are than elsewhere they stand together in the middle.
    beside = {position: [name for name, points in series.items() if position in points] for position in positions}

    def begin_of(position: Value, name: Value) -> float:
        names = beside[position]
        return positions.index(position) + (names.index(name) - len(names) / 2) * width

    for at, (name, points) in enumerate(series.items()):
        where = [begin_of(position, name) + width / 2 for position in points]
        means, halves = [point[0] for point in points.values()], [point[1] for point in points.values()]
        look: Any = {
            "color": _COLOURS[at % len(_COLOURS)],
            "label": _text(name),
            "error_kw": {"elinewidth": 0.8, "capsize": 0 if lying else 2},
        }
        if lying:
            axes.barh(where, means, width * 0.92, xerr=_whiskers(halves), **look)
        else:
            axes.bar(where, means, width * 0.92, yerr=_whiskers(halves), **look)
    along = axes.axvline if lying else axes.axhline
    along(0, color="black", linewidth=0.6)
    for mark in chart["paper"]:
        if mark["x"] is None:
            along(mark["y"], color="black", linestyle=_DASH[_is_papers(mark)], linewidth=1)
        elif (position := _value(mark["x"])) in positions:
            whole = mark["of"] is None or _value(mark["of"]) not in beside[position]
            begin = positions.index(position) - 0.4 if whole else begin_of(position, _value(mark["of"]))
            ends, height = [begin, begin + (0.8 if whole else width)], [mark["y"]] * 2
            look = {"color": "black", "linewidth": 2, "solid_capstyle": "butt", "zorder": 3}
            axes.plot(height if lying else ends, ends if lying else height, **look)
    if lying:
        axes.set_yticks(range(len(positions)), [_text(position) for position in positions])
        axes.tick_params(axis="y", length=0)
        axes.set_ylim(len(positions) - 0.5, -0.5)
        axes.margins(x=0.08)
        if chart["y"]["scale"] == "linear":
            _cut_off(axes, series, begin_of, width)
        return
    axes.tick_params(axis="x", length=0)
    axes.margins(y=0.08)


def _whiskers(halves: Sequence[float]) -> Optional[list[float]]:
    """Halves of intervals as matplotlib takes them: where there is none, no whisker is drawn."""
    return [half if half > 0 else math.nan for half in halves] if any(halves) else None


def _cut_off(
    axes: Axes, series: Mapping[Value, Mapping[Value, Point]], begin_of: Callable[[Value, Value], float], width: float
) -> None:
    """Lets lying bars that are much longer than nearly all others end at the edge, with their values and intervals."""
    bars = [(name, position, point) for name, points in series.items() for position, point in points.items()]
    bars.sort(key=lambda bar: abs(bar[2][0]))
    rest = bars[: len(bars) - max(1, len(bars) // 10)]
    most = _OUTLYING * max((abs(mean) + half for _, _, (mean, half) in rest), default=0.0)
    if most <= 0:
        return
    # All others are seen whole.
    longest = max(abs(mean) + half for _, _, (mean, half) in bars if abs(mean) <= most)
    for sign in (-1, 1):
        cut = [(name, position, point) for name, position, point in bars if point[0] * sign > most]
        edge = sign * _BEYOND * longest
        if cut:
            axes.set_xlim(left=edge if sign < 0 else None, right=edge if sign > 0 else None)
        for name, position, (mean, half) in cut:
            axes.annotate(
                f"{mean:.0f}" + (f" ± {half:.0f}" if half else ""),
                (edge, begin_of(position, name) + width / 2), (-3 * sign, 0),
                textcoords="offset points", ha="left" if sign < 0 else "right", va="center",
                fontsize=5.5, fontweight="bold", color="black",
                bbox={"boxstyle": "square,pad=0.15", "facecolor": "white", "edgecolor": "none"},
            )  # fmt: skip


def _scale(axes: Axes, which: figure_ticks.Which, scale: str) -> None:
    """The scale of the axis of values, and as many of its numbers as there is room for."""
    from matplotlib import ticker

    locators: list[Any]
    if scale == "linear":
        locators = [ticker.MaxNLocator(most, steps=_STEPS) for most in ("auto", 6, 5, 4, 3, 2)]
        figure_ticks.thin_out(axes, which, locators)
        return
    axis = axes.xaxis if which == "x" else axes.yaxis
    set_scale = axes.set_xscale if which == "x" else axes.set_yscale
    get_limits = axes.get_xlim if which == "x" else axes.get_ylim
    if scale == "symlog":
        set_scale("symlog", linthresh=1)
        _make_room(axes, which)
        low, high = get_limits()
        has_many = max(abs(low), abs(high)) < 100
        locators = [ticker.SymmetricalLogLocator(base=10, linthresh=1, subs=subs) for subs in ((1, 2, 5), (1,))]
    else:
        # Intervals that go to nothing or below end at the edge.
        set_scale("log", base=2 if scale == "log2" else 10, nonpositive="clip")
        low, high = get_limits()
        has_many = high < 300 * low
        locators = [ticker.LogLocator(10, subs=subs) for subs in ((1, 2, 5), (1,))]
    axis.set_minor_locator(ticker.NullLocator())
    axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: _number(value)))
    figure_ticks.thin_out(axes, which, locators if has_many else locators[1:])


def _make_room(axes: Axes, which: str) -> None:
    """Sets the limits of a scaled axis a bit beyond what is drawn, and to zero if nothing is below."""
    limits, axis = (axes.dataLim.intervalx, axes.xaxis) if which == "x" else (axes.dataLim.intervaly, axes.yaxis)
    transform = axis.get_transform()
    low, high = transform.transform(limits)
    room = _MARGIN * (high - low)
    begin, end = transform.inverted().transform([low - room, high + room])
    (axes.set_xlim if which == "x" else axes.set_ylim)(0 if limits[0] >= 0 else begin, end)


def _labels(series: Mapping[Value, Any], chart: Mapping[str, Any]) -> list[str]:
    labels = [_text(name) for name in series if name != ""]
    return [*labels, *dict.fromkeys(mark.get("what", "paper") for mark in chart["paper"])]


def _columns(labels: Sequence[str], width_in: float) -> int:
    longest = max(map(len, labels)) * _LETTER_IN + _SAMPLE_IN
    return max(1, min(len(labels), int(width_in / longest)))


def _legend_lines(series: Mapping[Value, Any], chart: Mapping[str, Any]) -> int:
    labels = _labels(series, chart)
    if not labels:
        return 0
    return math.ceil(len(labels) / _columns(labels, WIDTH_IN)) + bool(chart["by"])


def _legend(axes: Axes, series: Mapping[Value, Any], chart: Mapping[str, Any]) -> None:
    from matplotlib.lines import Line2D

    labels = _labels(series, chart)
    if not labels:
        return
    found = dict(zip(*reversed(axes.get_legend_handles_labels())))
    for mark in chart["paper"]:
        if mark["x"] is None:
            sample = Line2D([], [], color="black", linestyle=_DASH[_is_papers(mark)], linewidth=1)
        elif chart["kind"] == "bars":
            sample = Line2D([], [], color="black", linewidth=2)
        else:
            # Filled as the marks are, unless they have the colours of several lines.
            inside = "black" if all(each["of"] is None for each in chart["paper"]) else "white"
            look: Any = {"markersize": 8, "markeredgecolor": "black", "markeredgewidth": 0.5, "linestyle": "none"}
            sample = Line2D([], [], color=inside, marker="*", **look)
        found[mark.get("what", "paper")] = sample
    handles = [found[label] for label in labels]
    by = chart["by"]
    title = by.replace("_percent", " [%]").replace("_ms", " [ms]").replace("_", " ") if by else None
    _figure(axes).legend(
        handles, labels, loc="outside lower center", ncols=_columns(labels, _figure(axes).get_figwidth()),
        title=title, columnspacing=1.2, handlelength=2.2, title_fontsize=7,
    )  # fmt: skip


def _axes(positions: int, bars_at_each: int, lying: bool, legend_lines: int) -> Axes:
    from matplotlib import pyplot

    bars = positions * bars_at_each

    height = WIDTH_IN * 0.62
    width = WIDTH_IN
    if lying:
        height = max(height, positions * max(bars_at_each * _LYING_IN, _NAME_IN) + _BESIDE_IN)
        width = 1.5 * WIDTH_IN
    elif bars:
        width = min(max(WIDTH_IN, bars * _BAR_IN + _BESIDE_IN), 2 * WIDTH_IN + 0.2)
    return pyplot.subplots(figsize=(width, height + legend_lines * _LINE_IN))[1]


def _is_papers(mark: Mapping[str, Any]) -> bool:
    return "what" not in mark


def _figure(axes: Axes) -> Any:
    return axes.figure


def _value(text: Any) -> Value:
    try:
        return float(text)
    except (TypeError, ValueError):
        return str(text)


def _number(value: float) -> str:
    return f"{value:,.0f}".replace(",", "\u202f") if abs(value) >= 1e4 else f"{value:g}"


def _text(value: Value) -> str:
    return _number(value) if isinstance(value, float) else value


def main(arguments: Optional[Sequence[str]] = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python3 -m isonomia.figures", description=__doc__)
    parser.add_argument("directory", nargs="+", type=File, help="where `isonomia reproduce` wrote")
    parser.add_argument("--format", action="append", choices=["png", "svg", "pdf"], help="default: png and svg")
    options = parser.parse_args(arguments)
    import matplotlib

    matplotlib.use("Agg")
    for directory in options.directory:
        found = list(items(directory))
        if not found:
            parser.error(f"{directory}: no item is here (allowed: a directory that `isonomia reproduce` wrote)")
        for item in found:
            for file in draw_item(item, options.format or ("png", "svg")):
                print(file)


if __name__ == "__main__":
    try:
        main()
    except Error as error:
        sys.exit(str(error))
