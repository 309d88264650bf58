"""Policies of one's own in Python: an order and a scheme at fluid level, an arbiter at request level.

    pip install .
    python3 examples/own_policies.py
"""

from __future__ import annotations

import isonomia
from isonomia.policies import App, Problem, Rates

MACHINE = {
    "level": "fluid",
    "duration": "24h",
    "decisions": "event",
    "scheme": "pofs",
    "progress": "banked",
    "nodes": 64,
    "targets": {"count": 8, "bandwidth": "100MB/s"},
    "population": {"applications": 40},
}
SERVER = {
    "duration": "2s",
    "policy": "fifo",
    "target": [{"name": "disk", "bandwidth": "1GiB/s"}],
    "job": [
        {"name": "large", "processes": 8, "request": "4MiB"},
        {"name": "small", "processes": 2, "request": "64KiB"},
    ],
}


def least_left(app: App) -> float:
    """An order: the least to do first."""
    return max(demand.remaining_bytes or 0 for demand in app.demands)


def shares_by_nodes(problem: Problem) -> Rates:
    """A scheme: every target is shared by nodes."""
    nodes: dict[int, int] = {}
    for app in problem.apps:
        for demand in app.demands:
            nodes[demand.target] = nodes.get(demand.target, 0) + app.nodes
    return {
        app.name: {demand.target: app.nodes / nodes[demand.target] for demand in app.demands} for app in problem.apps
    }


def alternately(engine: isonomia.Engine) -> dict[str, float]:
    """An arbiter: the jobs alternately, whatever the size of their requests. Gives each job's share of the bytes."""
    last = ""
    while turn := engine.step():
        others = [request for request in turn.waiting if request.job != last]
        request = (others or turn.waiting)[0]
        last = request.job
        turn.serve(request)
    jobs = engine.outcome()["jobs"]
    return {job["job"]: job["bytes"] / sum(job["bytes"] for job in jobs) for job in jobs}


def io_s(outcome: isonomia.FluidOutcome) -> float:
    """The mean over applications of their time in I/O."""
    applications = [app["io_s"] for app in outcome["applications"] if app["runs"]]
    return sum(applications) / len(applications)


def main() -> None:
    fair = isonomia.simulate(MACHINE)
    assert "level" in fair and fair["level"] == "fluid"
    print(f"fair shares       {io_s(fair):8.1f} s in I/O")
    order = isonomia.by_order(least_left, guarantee=0.2)
    print(f"least left first  {io_s(isonomia.simulate_scheme(MACHINE, order)):8.1f} s in I/O")
    print(f"shares by nodes   {io_s(isonomia.simulate_scheme(MACHINE, shares_by_nodes, steady=True)):8.1f} s in I/O")
    print("bytes, alternately", {job: f"{share:.1%}" for job, share in alternately(isonomia.Engine(SERVER)).items()})


if __name__ == "__main__":
    main()
