"""The papers' worked examples through Python, and what is refused."""

import unittest

import isonomia

APPS = [
    {"id": 1, "compute_s": 8, "io_s": 4, "iterations": 1},
    {"id": 2, "compute_s": 4, "io_s": 2, "iterations": 2},
    {"id": 3, "compute_s": 2, "io_s": 1, "iterations": 4},
]


def fig_6(owed):
    """GIFT Fig. 6 at k2 and k3."""
    app = {"A": ["t1"], "B": ["t1", "t2"], "C": ["t1"], "D": ["t2"], "E": ["t2"], "F": ["t2"]}
    apps = [{"name": name, "targets": targets, "owed": owed if name == "A" else None} for name, targets in app.items()]
    return {"b_thres": 0.3, "app": apps}


def shares(result):
    return {app["name"]: app["share"] for app in result["apps"]}


class Allocate(unittest.TestCase):
    def test_gift_fig_6(self):
        case = {"b_thres": 0.3, "app": [{"name": "A", "targets": ["t1"]}, {"name": "B", "targets": ["t1", "t2"]}]}
        k1 = isonomia.allocate(case, "gift")
        self.assertAlmostEqual(shares(k1)["A"], 0.35, 6)
        self.assertAlmostEqual(shares(k1)["B"], 0.65, 6)
        self.assertAlmostEqual(k1["apps"][0]["coupon_issued"], 0.15, 6)
        k2 = isonomia.allocate(fig_6(0.15), "gift")
        for app, share in {"A": 0.416667, "B": 0.25, "C": 0.333333}.items():
            self.assertAlmostEqual(shares(k2)[app], share, 5)
        k3 = isonomia.allocate(fig_6(0.066667), "gift")
        self.assertAlmostEqual(k3["apps"][0]["coupon_redeemed"], 0.066667, 5)

    def test_every_scheme_decides(self):
        case = {"app": [{"name": "A", "targets": ["t1"]}, {"name": "B", "targets": ["t1", "t2"]}]}
        bandwidth = {
            scheme: isonomia.allocate(case, scheme)["effective_bandwidth"]
            for scheme in (
                "pofs bsip mbw tsa esa tmf rnd gift tbf adaptbf calciom coflow fair-finish".split()
            )
        }
        self.assertEqual(max(bandwidth.values()), bandwidth["mbw"])
        self.assertAlmostEqual(bandwidth["bsip"], 1.5)

    def test_what_cannot_be_is_refused_with_line_and_field(self):
        app = {"name": "A", "targets": ["t1"]}
        for case, words in [
            ({"app": [{**app, "weight": -1}]}, "<case>:4: app `A`: weight: -1 (allowed: a positive number)"),
            ({"app": [app], "targets": ["t2"]}, "`t1` is unknown (allowed: t2)"),
            ({"app": [app], "guaranty": 1}, "guaranty: unknown field"),
            ({"app": [{**app, "rate": {1, 2}}]}, "<case>: set is no TOML"),
            ({}, "app: there is none"),
        ]:
            with self.assertRaises(isonomia.Error) as caught:
                isonomia.allocate(case, "coflow")
            self.assertIn(words, str(caught.exception))
        with self.assertRaisesRegex(ValueError, 'scheme "best" is unknown .allowed: pofs, bsip, '):
            isonomia.allocate({"app": [app]}, "best")
        with self.assertRaisesRegex(isonomia.Error, "cannot open nowhere.toml: "):
            isonomia.allocate("nowhere.toml", "gift")


class Plan(unittest.TestCase):
    def test_schedules_by_hand(self):
        for policy, ends in [("fifo", [12, 15, 16]), ("longest-io", [12, 14, 18])]:
            schedule = isonomia.plan_schedule(APPS, policy)
            self.assertEqual([app["completion_s"] for app in schedule["apps"]], ends)
            self.assertEqual((schedule["makespan_s"], schedule["max_stretch"]), (ends[-1], ends[-1] / 12))

    def test_packs_by_hand(self):
        jobs = [{"id": name, "nodes": 6, "iterations": 2, "compute_s": 5, "volume": 5} for name in "ab"]
        plan = isonomia.plan_pack(jobs, nodes=8, bandwidth=1, io_nodes=2)
        self.assertEqual([pack["jobs"] for pack in plan["packs"]], [["a"], ["b"]])
        self.assertEqual((plan["makespan_s"], plan["mean_max_stretch"], plan["sensibility"]), (20, 1, "1"))
        together = isonomia.plan_pack(jobs, nodes=12, bandwidth=1, sensibility=float("inf"))
        self.assertEqual(len(together["packs"]), 1)
        self.assertGreater(together["mean_max_stretch"], 1)

    def test_what_cannot_be_is_refused(self):
        job = {"id": "a", "nodes": 6, "iterations": 2, "compute_s": 5, "volume": 5}
        for options, words in [
            ({"jobs": [job], "nodes": 4, "bandwidth": 1}, "<jobs>: line 2, field nodes: "),
            ({"jobs": [{**job, "compute_s": -5}], "nodes": 8, "bandwidth": 1}, '<jobs>: line 2, field compute_s: "-5"'),
            ({"jobs": [job], "nodes": 8}, "bandwidth: is missing"),
            ({"jobs": [job], "nodes": 8, "bandwidth": 0}, "bandwidth: 0 (allowed"),
            ({"jobs": [job], "nodes": 0, "bandwidth": 1}, "nodes: 0 (allowed: a whole number"),
            ({"jobs": [job], "nodes": 8, "bandwidth": 1, "sensibility": "most"}, 'sensibility "most"'),
            ({"nodes": 8, "bandwidth": 1}, "jobs and swf: give one of them"),
            ({"jobs": [], "nodes": 8, "bandwidth": 1}, "<jobs>: line 1"),
        ]:
            with self.assertRaises(isonomia.Error) as caught:
                isonomia.plan_pack(**options)
            self.assertIn(words, str(caught.exception))

    def test_frames_go_in_and_come_out(self):
        import pandas

        schedule = isonomia.plan_schedule(pandas.DataFrame(APPS), "stretch")
        table = isonomia.frame(schedule)
        self.assertEqual(list(table["id"]), ["1", "2", "3"])
        self.assertEqual(table["stretch"].max(), schedule["max_stretch"])
        with self.assertRaisesRegex(isonomia.Error, "table 'jobs' is not in this result .allowed: apps."):
            isonomia.frame(schedule, "jobs")


class Shares(unittest.TestCase):
    def test_themisio_figs_3_to_5(self):
        jobs = [{"name": "1", "user": "a", "nodes": 4}, {"name": "2", "user": "b", "nodes": 1}]
        self.assertEqual(isonomia.shares("size-fair", jobs), {"1": 0.8, "2": 0.2})
        self.assertEqual(isonomia.shares("job-fair", jobs), {"1": 0.5, "2": 0.5})
        jobs.append({"name": "3", "user": "b", "nodes": 3})
        self.assertEqual(isonomia.shares("user-then-size-fair", jobs), {"1": 0.5, "2": 0.125, "3": 0.375})

    def test_what_cannot_be_is_refused(self):
        for policy, jobs, words in [
            ("fairest", [], "fairest"),
            ("job-fair", [{"nodes": 1}], "job[0].name: is missing"),
            ("job-fair", [{"name": "a", "node": 1}], "job[0].node: is unknown"),
            ("job-fair", [{"name": "a", "nodes": 0}], "job[0].nodes: 0 (allowed"),
            ("job-fair", [{"name": "a"}, {"name": "a"}], "job `a` is there twice"),
        ]:
            with self.assertRaises(isonomia.Error) as caught:
                isonomia.shares(policy, jobs)
            self.assertIn(words, str(caught.exception))


class Packing(unittest.TestCase):
    def test_programs_that_cannot_be_solved_are_refused(self):
        for arguments, words in [
            (([1], [[1, 1]], [1]), "row 0 has 2 coefficients"),
            (([1], [[-1]], [1]), "coefficients are not negative"),
            (([1], [], []), ""),
            (([float("nan")], [[1]], [1]), "finite"),
        ]:
            with self.assertRaises(isonomia.Error) as caught:
                isonomia.solve_packing(*arguments)
            self.assertIn(words, str(caught.exception))
        with self.assertRaises(isonomia.Error):
            isonomia.solve_packing([1], [[1]], [1], bounds=[(2, 3)])


if __name__ == "__main__":
    unittest.main()
