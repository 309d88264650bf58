"""Scenarios in virtual time."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Optional, Union, cast

from . import _native
from .outcomes import Point, Run, Slice, Sweep
from .sources import Document, document

#: What ``isonomia sim --json`` prints: of one scenario its outcome, of a sweep the list ``points``.
Outcome = Union[Run, Sweep]


def simulate(
    scenario: Document,
    *,
    seed: Optional[int] = None,
    part: Optional[tuple[int, int]] = None,
    threads: Optional[int] = None,
    slices: bool = False,
) -> Outcome:
    """Simulates a scenario (a TOML file or a mapping) with the arbiters and schemes that decide live.

    Without a sweep the result is the outcome: ``level`` is "request" or "fluid", and there are ``jobs`` and
    ``targets``, or ``applications``. With a sweep it is ``{"points": [...]}``, each with ``point``, ``settings`` and
    ``outcome``, computed on ``threads`` threads (all cores). ``part=(i, n)`` computes every ``n``-th point from ``i``
    on, 0 ≤ i < n; :func:`join` puts parts together. ``seed`` replaces the one in the scenario. With ``slices``,
    outcomes at request level have a list ``slices`` of what each job had in each slice of time, as in the command's
    ``slices.csv``. Ctrl-C raises KeyboardInterrupt soon.
    """
    file, text = document(scenario, "scenario")
    results: list[Point] = []
    for result, series in json.loads(_native.simulate(file, text, seed, part or (0, 1), threads)):
        outcome: Run = result["outcome"]
        if slices and outcome["level"] == "request":
            outcome["slices"] = list(_slices(series, outcome["slice_ns"]))
        results.append(result)
    if part is None and len(results) == 1 and not results[0]["settings"]:
        return results[0]["outcome"]
    return {"points": results}


def _slices(series: list[tuple[str, list[int], list[int]]], slice_ns: int) -> Iterator[Slice]:
    for job, volumes, services in series:
        for at, (volume, service_ns) in enumerate(zip(volumes, services), 1):
            yield {"time_s": at * slice_ns / 1e9, "job": job, "bytes": volume, "service_ns": service_ns}


def points(scenario: Document) -> list[dict[str, str]]:
    """What is set in each point of a scenario's sweep, by path, as it is written there; nothing without a sweep."""
    settings = json.loads(_native.scenario_points(*document(scenario, "scenario")))
    return [dict(point) for point in settings if point]


def join(parts: Iterable[Outcome]) -> Sweep:
    """The points of several parts of a sweep, in order."""
    together = {point["point"]: point for part in parts for point in cast(Sweep, part)["points"]}
    return {"points": [together[number] for number in sorted(together)]}
