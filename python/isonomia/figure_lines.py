"""Lines of figures that lie on each other, drawn so that all of them are seen.

The first is drawn through. Those on it have dashes that alternate, so that each is seen between the others, and their
markers stand side by side.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Union

Value = Union[float, str]
#: Means and half widths of intervals by position.
Points = Mapping[Value, tuple[float, float]]
#: How matplotlib takes dashes: where in them a line begins, and how long they and the gaps are.
Dashes = tuple[float, tuple[float, float]]

#: Lines nearer to each other than this part of the axis are as one.
_TOGETHER = 0.012
#: They are as one if that is so on this part of the ways from one position to the next.
_MUCH = 0.4
#: Widths of a line: a dash.
_DASH = 3.5
#: Parts of the axis: how far apart whiskers of two lines at one position stand, and markers of lines that are as one.
_APART, _MARKERS_APART = 0.006, 0.018
#: What the marks of one position take at most of the room to the next position.
_ROOM = 0.6


def ranks(series: Mapping[Value, Points], chart: Mapping[str, Any]) -> list[tuple[int, int]]:
    """For each line its rank among those that it lies on, and how many those are."""
    heights = _heights(series, chart)
    on_it = [[at for at, other in enumerate(heights) if as_one(one, other)] for one in heights]
    found: list[int] = []
    for at, others in enumerate(on_it):
        taken = {found[other] for other in others if other < at}
        found.append(next(rank for rank in range(len(taken) + 1) if rank not in taken))
    return [(rank, 1 + max([rank, *(found[other] for other in others)])) for rank, others in zip(found, on_it)]


def as_one(one: Mapping[float, float], other: Mapping[float, float]) -> bool:
    """Whether two lines, as parts of the axis by position, lie on each other for a good part of where they both are."""
    common = sorted(position for position in one if position in other)
    near = [abs(one[position] - other[position]) < _TOGETHER for position in common]
    ways = [left and right for left, right in zip(near, near[1:])] or near
    return sum(ways) > 0 and sum(ways) >= _MUCH * len(ways)


def dashes(rank: int, count: int) -> Dashes:
    """The dashes of the line with this rank of `count`: one dash in a round, in which the others have theirs."""
    return ((count - rank) * _DASH, (_DASH, (count - 1) * _DASH))


def steps(series: Mapping[Value, Points], chart: Mapping[str, Any], positions: Sequence[float]) -> list[float]:
    """How far beside its positions each line's marks stand, in parts of the axis from the first position to the last."""
    count = len(series)
    found = [
        (at - (count - 1) / 2) * _APART + (rank - (of - 1) / 2) * (_MARKERS_APART - _APART if of > 1 else 0)
        for at, (rank, of) in enumerate(ranks(series, chart))
    ]
    scale: Any = (lambda position: position) if chart["x"]["scale"] == "linear" else math.log
    along = [scale(position) for position in positions]
    gaps = [(right - left) / (along[-1] - along[0]) for left, right in zip(along, along[1:])]
    widest = max(found, default=0.0) - min(found, default=0.0)
    shrunk = min(1.0, _ROOM * min(gaps, default=1.0) / widest) if widest > 0 else 1.0
    return [step * shrunk for step in found]


def _heights(series: Mapping[Value, Points], chart: Mapping[str, Any]) -> list[dict[float, float]]:
    """Means by position, as parts of the axis that shows all of the chart."""
    scale = chart["y"]["scale"]

    def on_axis(value: float) -> float:
        if scale == "linear":
            return value
        if scale == "symlog":
            return math.copysign(math.log10(1 + abs(value)), value)
        return math.log10(value) if value > 0 else math.nan

    lines = [
        {position: on_axis(mean) for position, (mean, _) in points.items() if isinstance(position, float)}
        for points in series.values()
    ]
    ends = [on_axis(mean + sign * half) for points in series.values() for mean, half in points.values() for sign in (-1, 1)]
    shown = [*ends, *(height for line in lines for height in line.values())]
    shown += [on_axis(float(mark["y"])) for mark in chart["paper"]]
    shown = [height for height in shown if math.isfinite(height)]
    length = (max(shown) - min(shown)) or 1.0 if shown else 1.0
    return [{position: height / length for position, height in line.items()} for line in lines]
