"""Single decisions and plans: allocate, plan, shares, and the linear programs underneath."""

from __future__ import annotations

import json
import math
import numbers
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Optional, TypedDict, Union, cast

from . import _native
from .sources import Document, Path, Table, document, table


class AppAllocation(TypedDict):
    """What one application gets; see :func:`allocate`."""

    name: str
    share: float
    fair_share: float
    coupon_issued: float
    coupon_redeemed: float


class TargetUse(TypedDict):
    """What one target gives, as parts of its bandwidth."""

    name: str
    used: float
    wasted: float


class Allocation(TypedDict):
    """The answer of :func:`allocate`."""

    apps: list[AppAllocation]
    targets: list[TargetUse]
    effective_bandwidth: float


class ScheduledApp(TypedDict):
    """An application, as it went."""

    id: str
    release_s: float
    completion_s: float
    alone_s: float
    stretch: float


class Schedule(TypedDict):
    """The answer of :func:`plan_schedule`."""

    policy: str
    makespan_s: float
    max_stretch: float
    apps: list[ScheduledApp]


class Pack(TypedDict):
    """Jobs that run together on an I/O node."""

    jobs: list[str]
    io_node: int
    begin_s: float
    time_s: float
    alone_s: float
    nodes: int
    io_occupation: float
    max_stretch: float


class NodeSeconds(TypedDict):
    """Compute nodes times seconds, by what they are doing."""

    useful: float
    delayed: float
    idle: float


class Packs(TypedDict):
    """The answer of :func:`plan_pack`."""

    policy: str
    sensibility: str
    nodes: int
    io_nodes: int
    alpha: float
    makespan_s: float
    mean_max_stretch: float
    node_seconds: NodeSeconds
    packs: list[Pack]


class Optimum(TypedDict):
    """The answer of :func:`solve_packing`."""

    objective: float
    values: list[float]


def allocate(case: Document, scheme: str) -> Allocation:
    """What a bandwidth allocation scheme gives each application of a case, for one decision.

    ``case`` is a TOML file or a mapping: a list ``app`` with ``name``, ``targets`` and what ``isonomia allocate
    --help`` names. ``scheme`` is one of pofs, bsip, mbw, tsa, esa, tmf, rnd, gift, tbf, adaptbf, calciom, coflow,
    fair-finish. A share is an application's part of each of its targets under synchronous progress; bandwidth and coupons are counted in targets.

    >>> case = {"app": [{"name": "A", "targets": ["t1"]}, {"name": "B", "targets": ["t1", "t2"]}]}
    >>> [app["share"] for app in allocate(case, "bsip")["apps"]]
    [0.5, 0.5]
    """
    file, text = document(case, "case")
    return cast(Allocation, json.loads(_native.allocate(file, text, scheme)))


def plan_schedule(apps: Table, policy: str) -> Schedule:
    """Schedules applications that compute and do I/O alternately on one exclusive I/O node.

    ``apps`` is a CSV file, a list of mappings, or a pandas frame, with ``id``, ``compute_s``, ``io_s``, ``iterations``
    and, optional, ``release_s``. ``policy`` is one of fifo, lowest-id, longest-io, shortest-io, shortest-remaining,
    longest-remaining, bandwidth, stretch. Ties go to the lowest id.
    """
    file, text = table(apps, "apps")
    return cast(Schedule, json.loads(_native.plan_schedule(file, text, policy)))


def plan_pack(
    jobs: Optional[Table] = None,
    *,
    nodes: int,
    bandwidth: Optional[float] = None,
    swf: Optional[Path] = None,
    io_nodes: int = 1,
    sensibility: Union[str, float] = "1",
    policy: str = "fifo",
    processors_per_node: int = 1,
    iterations: int = 10,
    io_fraction: float = 0.1,
) -> Packs:
    """Puts jobs into packs that run together, and the packs on I/O nodes.

    ``jobs`` is a CSV file, a list of mappings, or a pandas frame, with ``id``, ``nodes``, ``iterations``,
    ``compute_s``, ``volume``: what one iteration moves, in the unit whose rate ``bandwidth`` gives. Instead, ``swf`` is
    a log in the Standard Workload Format, of whose jobs ``processors_per_node``, ``iterations`` and ``io_fraction`` say
    what to assume. ``nodes`` are those of each I/O node; ``sensibility`` is 1, "alpha", "inf", or another number
    greater than 0.
    """
    if (jobs is None) == (swf is None):
        raise _native.Error("jobs and swf: give one of them")
    if jobs is not None and bandwidth is None:
        raise _native.Error("bandwidth: is missing (allowed: a number greater than 0, in the unit of the volumes)")
    _positive("bandwidth", bandwidth, math.inf)
    _whole("nodes", nodes, 2**32 - 1)
    _whole("io_nodes", io_nodes, 65536)
    _whole("processors_per_node", processors_per_node, 2**32 - 1)
    _whole("iterations", iterations, 1_000_000)
    if not 0 <= io_fraction <= 1:
        raise _native.Error(f"io_fraction: {io_fraction} (allowed: a number from 0 to 1)")
    file, text = (str(swf), None) if jobs is None else table(jobs, "jobs")
    written = f"{sensibility:g}" if isinstance(sensibility, (int, float)) else sensibility
    answer = _native.plan_pack(
        file,
        text,
        None if jobs is None else bandwidth,
        (processors_per_node, iterations, io_fraction),
        nodes,
        io_nodes,
        written,
        policy,
    )
    return cast(Packs, json.loads(answer))


def shares(policy: str, jobs: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """The share due to each job under a policy such as ``user-then-size-fair``, by name; nothing under ``fifo``.

    A job has ``name`` and, optional, ``user``, ``group``, ``nodes`` (1) and ``priority`` (1).

    >>> shares("size-fair", [{"name": "large", "nodes": 3}, {"name": "small"}])
    {'large': 0.75, 'small': 0.25}
    """
    known = {"name", "user", "group", "nodes", "priority"}
    rows: list[tuple[str, str, str, int, int]] = []
    for at, job in enumerate(jobs):
        if unknown := next((key for key in job if key not in known), None):
            raise _native.Error(f"job[{at}].{unknown}: is unknown (allowed: {', '.join(sorted(known))})")
        if "name" not in job:
            raise _native.Error(f"job[{at}].name: is missing")
        for key in ("nodes", "priority"):
            _whole(f"job[{at}].{key}", job.get(key, 1), 2**32 - 1)
        name, user, group = (str(job.get(key, "")) for key in ("name", "user", "group"))
        rows.append((name, user, group, int(job.get("nodes", 1)), int(job.get("priority", 1))))
    names = [row[0] for row in rows]
    if twice := next((name for at, name in enumerate(names) if name in names[:at]), None):
        raise _native.Error(f"job `{twice}` is there twice (allowed: each name once)")
    return dict(zip(names, _native.shares(policy, rows)))


def solve_packing(
    costs: Sequence[float],
    rows: Sequence[Sequence[float]],
    limits: Sequence[float],
    *,
    bounds: Optional[Sequence[tuple[float, Optional[float]]]] = None,
    weights: Optional[Sequence[float]] = None,
) -> Optimum:
    """Solves ``max costs·x`` subject to ``rows x ≤ limits`` and ``bounds``, with coefficients that are not negative.

    This is the solver of the allocation schemes. ``bounds`` are pairs of lowest and highest value, the highest None if
    there is none; 0 and none by default. With ``weights``, one for each variable, the optimum is the one that is
    max-min fair in value over weight; it is unique.

    >>> solve_packing([1, 2], [[1, 1], [0, 1]], [1, 0.5], weights=[1, 1])
    {'objective': 1.5, 'values': [0.5, 0.5]}
    """
    pairs = [(0.0, math.inf)] * len(costs)
    if bounds is not None:
        pairs = [(float(low), math.inf if high is None else float(high)) for low, high in bounds]
    wanted = None if weights is None else [float(weight) for weight in weights]
    matrix = [[float(value) for value in row] for row in rows]
    objective, values = _native.solve_packing(list(map(float, costs)), matrix, list(map(float, limits)), pairs, wanted)
    return {"objective": objective, "values": values}


def _whole(name: str, value: Any, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or not 1 <= int(value) <= most:
        raise _native.Error(f"{name}: {value} (allowed: a whole number, 1 to {most})")


def _positive(name: str, value: Optional[float], most: float) -> None:
    if value is not None and not 0 < value < most:
        raise _native.Error(f"{name}: {value} (allowed: a number greater than 0)")
