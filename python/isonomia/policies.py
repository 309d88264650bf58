"""Policies of one's own, run by the engines that run the built-in ones.

At fluid level a *scheme* gives every application a rate at each of its targets, or an *order* says who comes first
(:func:`simulate_scheme`). At request level an *arbiter* chooses whose request a target serves next (:class:`Engine`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Callable, Literal, Optional, cast

from . import _native
from .outcomes import FluidOutcome, RequestOutcome
from .sources import Document, document


@dataclass(frozen=True)
class Demand:
    """What an application does at a target, which is known by its number."""

    target: int
    #: Bytes that are left of the I/O phase there; ``None`` if nothing is told.
    remaining_bytes: Optional[int]


@dataclass(frozen=True)
class App:
    """An application in an I/O phase, with something to do at each target of its ``demands``."""

    name: str
    nodes: int
    #: Of its fair share.
    weight: float
    #: How often it has run.
    runs: int
    #: Bytes that it received in this phase.
    attained_bytes: int
    #: How many times longer the phase takes than alone, if it were served alone from now on.
    slowdown: float
    #: When the phase began; together with the name it tells one phase from another.
    began_s: float
    demands: Sequence[Demand]


@dataclass(frozen=True)
class Problem:
    """Applications that are in I/O at ``now_s``, by name. Every target has a bandwidth of 1."""

    now_s: float
    apps: Sequence[App]


#: Parts of a target's bandwidth, by application and target; who is not named has none.
Rates = Mapping[str, Mapping[int, float]]
Scheme = Callable[[Problem], Rates]
#: The least is first. Whatever Python can compare.
Order = Callable[[App], Any]


def by_order(key: Order, *, guarantee: float = 0.0) -> Scheme:
    """The scheme under which each application keeps ``guarantee``, 0 to 1, of its fair share, and the rest of a target
    is for the one with the least key there; ties go by name."""
    if not 0 <= guarantee <= 1:
        raise _native.Error(f"guarantee {guarantee} (allowed: 0 to 1)")

    def allocate(problem: Problem) -> Rates:
        weights: dict[int, float] = {}
        for app in problem.apps:
            for demand in app.demands:
                weights[demand.target] = weights.get(demand.target, 0.0) + app.weight
        rates: dict[str, dict[int, float]] = {}
        served: set[int] = set()
        for app in sorted(problem.apps, key=key):
            rates[app.name] = mine = {}
            for demand in app.demands:
                mine[demand.target] = guarantee * app.weight / weights[demand.target]
                if demand.target not in served:
                    mine[demand.target] += 1 - guarantee
                    served.add(demand.target)
        return rates

    return allocate


def simulate_scheme(
    scenario: Document,
    scheme: Scheme,
    *,
    seed: Optional[int] = None,
    progress: Literal["banked", "min-rate"] = "banked",
    steady: bool = False,
) -> FluidOutcome:
    """Simulates a scenario at fluid level, without a sweep, under a scheme of one's own instead of its ``scheme``.

    ``scheme`` is called at every decision; what it raises comes out here. With ``progress="min-rate"`` an application is
    as fast as its slowest target. A ``steady`` scheme gives the same to the same applications whatever happened since, and
    is asked less often. Rates that a target cannot give raise :class:`isonomia.Error`. An order is a scheme by
    :func:`by_order`.

    >>> def half(problem: Problem) -> Rates:
    ...     return {app.name: {demand.target: 0.5 for demand in app.demands} for app in problem.apps[:2]}
    """

    def decide(now_s: float, apps: list[_native.App]) -> list[float]:
        problem = Problem(now_s, tuple(_app(app) for app in apps))
        rates = scheme(problem)
        nothing: Mapping[int, float] = {}
        wanted = ((app.name, demand.target) for app in problem.apps for demand in app.demands)
        return [float(rates.get(name, nothing).get(target, 0.0)) for name, target in wanted]

    file, text = document(scenario, "scenario")
    if progress not in ("banked", "min-rate"):
        raise _native.Error(f"progress {progress!r} (allowed: banked, min-rate)")
    outcome = _native.simulate_scheme(file, text, seed, decide, progress == "banked", steady)
    return cast(FluidOutcome, json.loads(outcome))


def _app(app: _native.App) -> App:
    name, nodes, weight, runs, attained_bytes, slowdown, began_s, demands = app
    at = tuple(Demand(*demand) for demand in demands)
    return App(name, nodes, weight, runs, attained_bytes, slowdown, began_s, at)


@dataclass(frozen=True)
class Request:
    """A request that waits."""

    id: int
    job: str
    #: The time that it takes of the target.
    cost_ns: int
    size_bytes: int


@dataclass
class Turn:
    """A target that is free, at a time, and what waits there, the oldest first."""

    target: str
    now_ns: int
    waiting: Sequence[Request]
    _chosen: Optional[Request] = field(default=None, repr=False)

    def serve(self, request: Request) -> None:
        """Serves this request next; without a call it is the oldest."""
        if request not in self.waiting:
            raise _native.Error(f"{request} does not wait at {self.target} (allowed: one of `waiting`)")
        self._chosen = request


class Engine:
    """A simulation at request level, without a sweep, that stops whenever a target is free and somebody waits there.

    >>> def shortest(engine: Engine) -> RequestOutcome:
    ...     while turn := engine.step():
    ...         turn.serve(min(turn.waiting, key=lambda request: request.cost_ns))
    ...     return engine.outcome()
    """

    def __init__(self, scenario: Document, *, seed: Optional[int] = None) -> None:
        self._stepping = _native.Stepping(*document(scenario, "scenario"), seed)
        self._turn: Optional[Turn] = None

    def step(self) -> Optional[Turn]:
        """Serves what was chosen and goes on to the next turn; ``None`` at the end."""
        chosen = self._turn._chosen if self._turn else None
        turn = self._stepping.step(chosen.id if chosen else None)
        self._turn = Turn(turn[0], turn[1], tuple(Request(*request) for request in turn[2])) if turn else None
        return self._turn

    def outcome(self) -> RequestOutcome:
        """What came out, after the last step."""
        outcome = self._stepping.outcome()
        if outcome is None:
            raise _native.Error("the simulation is not at its end (allowed: after step() has given None)")
        return cast(RequestOutcome, json.loads(outcome))
