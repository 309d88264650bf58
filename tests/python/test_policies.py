"""Policies of one's own: they do what the built-in ones do where they say the same."""

import gc
import importlib.util
import io
import unittest
from contextlib import redirect_stdout
from pathlib import Path

import isonomia
from isonomia.policies import Problem

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
MACHINE = {
    "level": "fluid",
    "duration": "6h",
    "decisions": "event",
    "scheme": "pofs",
    "progress": "banked",
    "nodes": 64,
    "targets": {"count": 8, "bandwidth": "100MB/s"},
    "population": {"applications": 20},
}
SERVER = {
    "duration": "1s",
    "policy": "fifo",
    "slowdown": False,
    "target": [{"name": "disk", "bandwidth": "1GiB/s", "count": 2}],
    "job": [
        {"name": "large", "processes": 4, "request": "4MiB"},
        {"name": "small", "processes": 2, "request": "256KiB"},
    ],
}


def fair(problem: Problem):
    weights = {}
    for app in problem.apps:
        for demand in app.demands:
            weights[demand.target] = weights.get(demand.target, 0) + app.weight
    return {
        app.name: {demand.target: app.weight / weights[demand.target] for demand in app.demands}
        for app in problem.apps
    }


def io_s(outcome):
    return [app["io_s"] for app in outcome["applications"]]


class Schemes(unittest.TestCase):
    def test_fair_shares_by_hand_are_fair_shares(self):
        own = isonomia.simulate_scheme(MACHINE, fair, steady=True)
        for mine, theirs in zip(io_s(own), io_s(isonomia.simulate(MACHINE))):
            self.assertAlmostEqual(mine, theirs, 3)
        at_the_slowest = isonomia.simulate_scheme(MACHINE, fair, progress="min-rate")
        built_in = isonomia.simulate({**MACHINE, "progress": "min-rate"})
        for mine, theirs in zip(io_s(at_the_slowest), io_s(built_in)):
            self.assertAlmostEqual(mine, theirs, 3)

    def test_an_order_by_hand_is_the_coflow_order(self):
        coflow = {**MACHINE, "scheme": "coflow", "order": "attained", "guarantee": 0.5}
        own = isonomia.simulate_scheme(MACHINE, isonomia.by_order(lambda app: app.attained_bytes, guarantee=0.5))
        for mine, theirs in zip(io_s(own), io_s(isonomia.simulate(coflow))):
            self.assertAlmostEqual(mine, theirs, 3)

    def test_a_scheme_sees_who_is_there(self):
        seen = []

        def look(problem):
            seen.append(problem)
            return fair(problem)

        isonomia.simulate_scheme(MACHINE, look, seed=2)
        self.assertEqual([problem.now_s for problem in seen], sorted(problem.now_s for problem in seen))
        for problem in seen:
            self.assertEqual([app.name for app in problem.apps], sorted(app.name for app in problem.apps))
            for app in problem.apps:
                self.assertLessEqual(app.began_s, problem.now_s)
                self.assertTrue(all(demand.remaining_bytes > 0 for demand in app.demands))

    def test_what_a_target_cannot_give_is_refused(self):
        def twice(problem):
            return {app.name: {demand.target: 2.0 for demand in app.demands} for app in problem.apps}

        with self.assertRaisesRegex(isonomia.Error, r"gives 2.* \(allowed: its capacity, 1, at most\)"):
            isonomia.simulate_scheme(MACHINE, twice)
        with self.assertRaisesRegex(ZeroDivisionError, "zero"):
            isonomia.simulate_scheme(MACHINE, lambda problem: 1 / 0)
        with self.assertRaisesRegex(isonomia.Error, 'allowed: "fluid"'):
            isonomia.simulate_scheme(SERVER, fair)
        with self.assertRaisesRegex(isonomia.Error, "a sweep"):
            isonomia.simulate_scheme({**MACHINE, "sweep": {"estimate": [1.0, 2.0]}}, fair)
        with self.assertRaisesRegex(isonomia.Error, "guarantee 2"):
            isonomia.by_order(lambda app: app.name, guarantee=2)


class Arbiters(unittest.TestCase):
    def test_the_oldest_first_is_fifo(self):
        engine = isonomia.Engine(SERVER)
        before = 0
        while turn := engine.step():
            self.assertGreaterEqual(turn.now_ns, before)
            before = turn.now_ns
            self.assertIn(turn.target, ["disk-0", "disk-1"])
            turn.serve(turn.waiting[0])
        self.assertIsNone(engine.step(), "and stays at its end")
        self.assertEqual(engine.outcome(), isonomia.simulate(SERVER))

    def test_one_job_before_the_other(self):
        def share(first):
            engine = isonomia.Engine(SERVER)
            while turn := engine.step():
                turn.serve(min(turn.waiting, key=lambda request: request.job != first))
            return {job["job"]: job["share"] for job in engine.outcome()["jobs"]}[first]

        self.assertGreater(share("large"), 0.99)
        self.assertGreater(share("small"), 5 * (1 - share("large")))

    def test_only_who_waits_can_be_served(self):
        engine = isonomia.Engine(SERVER)
        request = engine.step().waiting[0]
        with self.assertRaisesRegex(isonomia.Error, "not at its end"):
            engine.outcome()
        turn = engine.step()
        while request in turn.waiting:
            turn = engine.step()
        with self.assertRaisesRegex(isonomia.Error, "does not wait"):
            turn.serve(request)
        # An engine that nobody steps any more ends by itself.
        del engine, turn
        gc.collect()
        with self.assertRaisesRegex(isonomia.Error, 'allowed: "request"'):
            isonomia.Engine(MACHINE)


class Examples(unittest.TestCase):
    def test_the_example_runs(self):
        spec = importlib.util.spec_from_file_location("own_policies", EXAMPLES / "own_policies.py")
        example = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(example)
        text = io.StringIO()
        with redirect_stdout(text):
            example.main()
        self.assertEqual(len(text.getvalue().splitlines()), 4)


if __name__ == "__main__":
    unittest.main()
