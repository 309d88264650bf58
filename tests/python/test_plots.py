"""Every plot is drawn from what the package returns, and shows its numbers."""

import tempfile
import unittest
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot  # noqa: E402

import isonomia  # noqa: E402
from isonomia import plots  # noqa: E402
from test_laboratory import APPS  # noqa: E402
from test_simulation import FLUID, SCENARIO, SWEEP  # noqa: E402


class Plots(unittest.TestCase):
    def tearDown(self):
        pyplot.close("all")

    def test_allocations_and_schedules_are_bars(self):
        case = {"b_thres": 0.3, "app": [{"name": "A", "targets": ["t1"]}, {"name": "B", "targets": ["t1", "t2"]}]}
        axes = plots.allocation(isonomia.allocate(case, "gift"))
        heights = [round(bar.get_height(), 6) for bar in axes.patches]
        self.assertEqual(heights, [0.5, 0.5, 0.35, 0.65])
        schedule = isonomia.plan_schedule(APPS, "fifo")
        axes = plots.schedule(schedule)
        self.assertEqual([bar.get_height() for bar in axes.patches], [app["stretch"] for app in schedule["apps"]])

    def test_packs_are_drawn_where_and_when_they_run(self):
        jobs = [{"id": name, "nodes": 6, "iterations": 2, "compute_s": 5, "volume": 5} for name in "abc"]
        plan = isonomia.plan_pack(jobs, nodes=8, bandwidth=1, io_nodes=2)
        axes = plots.packs(plan)
        self.assertEqual({bar.get_x() for bar in axes.patches}, {pack["begin_s"] for pack in plan["packs"]})
        self.assertEqual(len(axes.texts), 3)

    def test_simulations_are_lines_with_units(self):
        outcome = isonomia.simulate(SCENARIO, slices=True)
        axes = plots.throughput(outcome)
        self.assertEqual(axes.get_ylabel(), "throughput [MiB/s]")
        self.assertEqual(len(axes.get_legend().get_texts()), 2)
        fluid = isonomia.simulate(FLUID)
        axes = plots.slowdowns({"gift": fluid, "requests": outcome})
        self.assertEqual([len(line.get_xdata()) for line in axes.lines][1], 3)
        with self.assertRaisesRegex(isonomia.Error, "there are no slices in this outcome"):
            plots.throughput(fluid)

    def test_sweeps_are_lines_over_a_setting(self):
        result = isonomia.simulate(SWEEP)
        axes = plots.sweep(result, "job.small.nodes", "share", by=["policy", "job"])
        self.assertEqual(len(axes.lines), 6)
        self.assertEqual(list(axes.lines[0].get_xdata()), [1, 3])
        with self.assertRaisesRegex(isonomia.Error, "column 'colour' is not in this sweep"):
            plots.sweep(result, "colour", "share")

    def test_files_are_the_same_every_time(self):
        schedule = isonomia.plan_schedule(APPS, "fifo")
        with tempfile.TemporaryDirectory() as directory:
            for ending, begin in [("pdf", b"%PDF"), ("png", b"\x89PNG"), ("svg", b"<?xml")]:
                files = [Path(directory, f"{name}.{ending}") for name in "ab"]
                for file in files:
                    plots.save(plots.schedule(schedule), file)
                self.assertTrue(files[0].read_bytes().startswith(begin))
                self.assertEqual(files[0].read_bytes(), files[1].read_bytes(), ending)
            with self.assertRaisesRegex(isonomia.Error, "what to write"):
                plots.save(plots.schedule(schedule), Path(directory, "a.doc"))


if __name__ == "__main__":
    unittest.main()
