"""Simulations from Python: what comes out, parts of sweeps, threads, and Ctrl-C."""

import copy
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest
from pathlib import Path

import isonomia

SCENARIO = {
    "duration": "2s",
    "slowdown": True,
    "policy": "size-fair",
    "target": [{"name": "disk", "bandwidth": "1GiB/s"}],
    "job": [
        {"name": "large", "nodes": 3, "processes": 4, "request": "1MiB"},
        {"name": "small", "request": "1MiB"},
    ],
}
SWEEP = {**SCENARIO, "sweep": {"policy": ["fifo", "job-fair", "size-fair"], "job.small.nodes": [1, 3]}}
FLUID = {
    "level": "fluid",
    "duration": "24h",
    "scheme": "gift",
    "nodes": 64,
    "targets": {"count": 8, "bandwidth": "100MB/s"},
    "population": {"applications": 20},
}
# Far more virtual time than any machine gets through before the signal.
ENDLESS = {**SCENARIO, "duration": "3000000s", "slice": "300000s", "slowdown": False}


class Simulate(unittest.TestCase):
    def test_shares_are_those_of_the_policy(self):
        outcome = isonomia.simulate(SCENARIO)
        due = isonomia.shares("size-fair", [{"name": "large", "nodes": 3}, {"name": "small"}])
        for job in outcome["jobs"]:
            self.assertAlmostEqual(job["share"], due[job["job"]], 2)
        self.assertEqual(outcome, isonomia.simulate(SCENARIO), "the same again")

    def test_slices_are_the_throughput_over_time(self):
        outcome = isonomia.simulate(SCENARIO, slices=True)
        table = isonomia.frame(outcome, "slices")
        self.assertEqual(table["time_s"].max(), 2.0)
        for job in outcome["jobs"]:
            self.assertAlmostEqual(table[table["job"] == job["job"]]["bytes"].sum() / job["bytes"], 1, 6)

    def test_a_fluid_scenario_gives_its_applications(self):
        outcome = isonomia.simulate(FLUID, seed=3)
        self.assertEqual(len(isonomia.frame(outcome)), 20)
        self.assertIsNotNone(outcome["gift"])
        self.assertNotEqual(outcome, isonomia.simulate(FLUID, seed=4))

    def test_parts_of_a_sweep_are_the_sweep(self):
        whole = isonomia.simulate(SWEEP)
        parts = [isonomia.simulate(SWEEP, part=(at, 4), threads=1) for at in range(4)]
        self.assertEqual(isonomia.join(parts[::-1]), whole)
        settings = [dict(point["settings"]) for point in whole["points"]]
        self.assertEqual(settings, isonomia.points(SWEEP))
        self.assertEqual(len(settings), 6)
        table = isonomia.frame(whole)
        fair = table[(table["policy"] == "job-fair") & (table["job"] == "small")]
        self.assertEqual(list(fair["share"].round(1)), [0.5, 0.5])

    def test_what_cannot_be_is_refused_with_file_line_and_field(self):
        bad = copy.deepcopy(SCENARIO)
        bad["job"][1]["processes"] = -1
        with self.assertRaisesRegex(isonomia.Error, r"<scenario>:\d+: job\[1\]\.processes: "):
            isonomia.simulate(bad)
        with tempfile.TemporaryDirectory() as directory:
            file = Path(directory, "s.toml")
            file.write_text('duration = "1s"\npolicy = 7\n')
            with self.assertRaisesRegex(isonomia.Error, r"s\.toml:2: policy: "):
                isonomia.simulate(file)
        with self.assertRaisesRegex(isonomia.Error, "part 4 of 4"):
            isonomia.simulate(SWEEP, part=(4, 4))

    def test_other_threads_go_on_meanwhile(self):
        # Were Python's lock held, the main thread would never come back from one of its naps.
        program = textwrap.dedent(
            f"""
            import isonomia, os, threading, time
            threading.Thread(target=isonomia.simulate, args=({ENDLESS!r},), daemon=True).start()
            for _ in range(100):
                time.sleep(0.005)
            print("awake", flush=True)
            os._exit(0)
            """
        )
        child = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
        self.assertEqual(child.stdout, "awake\n", child.stderr)

    def test_ctrl_c_ends_a_simulation(self):
        program = f"import isonomia\nprint('begins', flush=True)\nisonomia.simulate({ENDLESS!r})\n"
        # Whoever runs these tests in the background has SIGINT ignored.
        program = "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n" + program
        child = subprocess.Popen(
            [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        try:
            self.assertEqual(child.stdout.readline(), "begins\n")
            # Python's own handler acts before the call and in it alike; until it did, the signal is sent again.
            deadline = time.monotonic() + 60
            while child.poll() is None and time.monotonic() < deadline:
                os.kill(child.pid, signal.SIGINT)
                try:
                    child.wait(1)
                except subprocess.TimeoutExpired:
                    continue
            self.assertIsNotNone(child.returncode, "it ends")
            self.assertIn("KeyboardInterrupt", child.communicate()[1])
        finally:
            child.kill()
            child.communicate()


if __name__ == "__main__":
    unittest.main()
