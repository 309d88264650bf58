"""Darshan's own example logs as I/O profiles, and logs that are none."""

import importlib.util
import os
import tempfile
import unittest
from pathlib import Path

import darshan as upstream

import isonomia
from isonomia import darshan

TRACES = Path(__file__).resolve().parents[2] / "examples" / "traces"
EXAMPLES = Path(upstream.__file__).parent


def log(name):
    return next(EXAMPLES.glob(f"**/{name}"))


def moved(phases, op, processes):
    return sum(row["request_bytes"] * row["requests"] * processes for row in phases if row["op"] == op)


class Profiles(unittest.TestCase):
    def test_bytes_are_those_of_the_log(self):
        # Totals of POSIX and STDIO as `darshan-parser --total` tells them.
        for name in ("sample-badost.darshan", "dxt.darshan"):
            with self.subTest(name):
                phases = darshan.profile(log(name))
                report = upstream.DarshanReport(str(log(name)), read_all=False)
                processes = report.metadata["job"]["nprocs"]
                for op, counter in [("read", "BYTES_READ"), ("write", "BYTES_WRITTEN")]:
                    total = 0
                    for module in ("POSIX", "STDIO"):
                        report.mod_read_all_records(module)
                        total += int(report.records[module].to_df()["counters"][f"{module}_{counter}"].sum())
                    # Half a byte of every request is lost at most.
                    rounding = sum(row["requests"] for row in phases if row["op"] == op) * processes
                    self.assertAlmostEqual(moved(phases, op, processes), total, delta=max(rounding, total * 0.001))

    def test_a_profile_runs_in_the_simulator(self):
        with tempfile.TemporaryDirectory() as directory:
            job = darshan.job(log("ior_hdf5_example.darshan"), Path(directory, "ior.csv"), name="ior")
            self.assertEqual(job["processes"], 4)
            scenario = {
                "duration": "60s",
                "target": [{"name": "disk", "bandwidth": "1GiB/s"}],
                "job": [{**job, "iterations": 1}],
            }
            outcome = isonomia.simulate(scenario)
            phases = darshan.profile(log("ior_hdf5_example.darshan"))
            expected = sum(row["requests"] for row in phases) * 4
            self.assertEqual(outcome["jobs"][0]["requests_total"], expected)
            self.assertIsNotNone(outcome["jobs"][0]["elapsed_ns"])

    def test_what_darshan_parser_prints_is_read_without_its_library(self):
        climate = darshan.profile(TRACES / "climate.darshan.txt", gap_s=0.5)
        self.assertEqual(moved(climate, "write", 64), 4 * 4 << 30)
        self.assertEqual(len([row for row in climate if row["op"] == "write"]), 4, "checkpoints")
        self.assertEqual(moved(darshan.profile(TRACES / "training.darshan.txt", gap_s=0.5), "read", 8), 9 * 256 << 20)

    def test_what_is_wrong_in_what_it_prints_is_named(self):
        text = (TRACES / "climate.darshan.txt").read_text()
        for old, new, words in [
            ("# nprocs: 64", "# nprocs: many", "txt:8: 'many' is no number"),
            ("# nprocs: 64", "# nprocs: 0", "nprocs: 0 .allowed: 1 or more"),
            ("POSIX_WRITES\t1024", "POSIX_WRITES\tnan", "POSIX_WRITES"),
            ("POSIX_WRITES\t1024", "POSIX_WROTE\t1024", "POSIX_WRITES: is missing for the file 9001"),
            ("POSIX_BYTES_WRITTEN\t4294967296", "POSIX_BYTES_WRITTEN\t-5", "POSIX_BYTES_WRITTEN"),
            ("POSIX\t-1\t9001\tPOSIX_READS\t0", "POSIX -1", "txt:20: 4 fields .allowed: 5 or more"),
        ]:
            with self.subTest(new), tempfile.TemporaryDirectory() as directory:
                self.assertIn(old, text)
                broken = Path(directory, "log.txt")
                broken.write_text(text.replace(old, new, 1))
                with self.assertRaisesRegex(isonomia.Error, words):
                    darshan.profile(broken)

    def test_the_example_compares_policies(self):
        spec = importlib.util.spec_from_file_location("compare", TRACES / "compare.py")
        example = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(example)
        found = example.compare(sorted(TRACES.glob("*.darshan.txt")))
        self.assertEqual(list(found), example.POLICIES)
        for jobs in found.values():
            self.assertEqual(list(jobs), ["climate", "training"])
            self.assertTrue(all(phases > 0 for *_, phases in jobs.values()), jobs)
        self.assertGreater(found["fifo"]["training"][0], 2 * found["fair-finish"]["training"][0])
        late = {policy: sum(late for _, _, late, _ in jobs.values()) for policy, jobs in found.items()}
        self.assertLessEqual(late["fair-finish"], late["fifo"])

    def test_bursts_are_phases(self):
        access = darshan._Access
        accesses = [
            access(10.0, 12.0, "write", 8000, 8),
            access(0.5, 1.0, "read", 4000, 4),
            access(0.2, 0.2, "metadata", 0, 8),
            access(1.5, 2.0, "write", 1, 1),
            access(11.0, 11.5, "write", 8000, 8),
        ]
        self.assertEqual(
            [tuple(row.values()) for row in darshan._phases(accesses, 4, 1.0)],
            [
                (0.2, "metadata", 0, 2),
                (0.5, "read", 1000, 1),
                (1.5, "write", 1, 1),
                (10.0, "write", 1000, 4),
            ],
        )
        self.assertEqual(len(darshan._phases(accesses, 4, 0.4)), 4)
        self.assertEqual(len(darshan._phases(accesses, 4, 100.0)), 3)


class Refusals(unittest.TestCase):
    def refusal(self, file):
        with self.assertRaises(isonomia.Error) as caught:
            darshan.profile(file)
        return str(caught.exception)

    def test_what_is_no_log_is_named(self):
        self.assertEqual(self.refusal("nowhere.darshan"), "cannot open nowhere.darshan: No such file or directory")
        with tempfile.TemporaryDirectory() as directory:
            self.assertIn("Is a directory", self.refusal(directory))
            whole = log("sample-goodost.darshan").read_bytes()
            for length in (0, len(whole) // 8, len(whole) // 2):
                file = os.path.join(directory, f"{length}.darshan")
                Path(file).write_bytes(whole[:length])
                self.assertIn(file, self.refusal(file))

    def test_counters_that_cannot_be_are_named(self):
        with self.assertRaisesRegex(isonomia.Error, "f: POSIX_F_READ_START_TIMESTAMP: -1.0 is no time"):
            darshan._span("f", {"POSIX_F_READ_START_TIMESTAMP": -1.0}, "POSIX_F_READ")
        with self.assertRaisesRegex(isonomia.Error, "f: POSIX_BYTES_READ: -1 "):
            darshan._amount("f", "POSIX_BYTES_READ", -1)


if __name__ == "__main__":
    unittest.main()
