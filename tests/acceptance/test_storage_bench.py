"""`isonomia-bench storage`: it measures, and leaves nothing behind."""

import json
import os
import signal
import subprocess
import tempfile
from pathlib import Path

from service import Case, bench, clean_environment, wait_for


class StorageBench(Case):
    def setUp(self):
        super().setUp()
        if os.geteuid() != 0:
            self.skipTest("a loop device takes root")
        if not os.access("/dev/fuse", os.R_OK | os.W_OK):
            self.skipTest("/dev/fuse cannot be opened")
        self.needs("losetup", "mkfs.ext4", "fio")
        out = tempfile.TemporaryDirectory(prefix="isonomia-bench-out-")
        self.addCleanup(out.cleanup)
        self.out = Path(out.name)

    def start(self, *options):
        command = [bench(), "storage", "--quick", "--repeat", "1", "--json", "--out", str(self.out), *options]
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=clean_environment(), text=True
        )

        def end():
            process.kill()
            process.communicate()

        self.addCleanup(end)
        return process

    def measure(self, *options):
        process = self.start(*options)
        out, err = process.communicate(timeout=120)
        if "no device can be emulated here" in err:
            self.skipTest(f"no device can be emulated here: {err.strip().splitlines()[-1]}")
        self.assertEqual(0, process.returncode, err)
        report = json.loads(out)
        self.assertIsNone(report["error"])
        self.assertTrue(all(len(row["values"]) == 1 for row in report["rows"]), report["rows"])
        return {(row["name"], row["way"]): row for row in report["rows"]}

    def test_reads_beside_a_writer_with_and_without_us(self):
        rows = self.measure("--device", "serial", "--only", "tail")
        times = [row for (name, _), row in rows.items() if name.endswith("99th percentile")]
        # Once more through us, in a latency class.
        self.assertEqual(["through us", "through us", "without us"], sorted(row["way"] for row in times))
        for row in times:
            # No device answers sooner than it takes.
            self.assertGreater(row["values"][0], 1000)

    def test_a_target_that_hangs(self):
        rows = self.measure("--device", "parallel", "--only", "hang")
        rates = {name: row["values"][0] for (name, _), row in rows.items() if row["unit"] == "op/s"}
        for name, rate in rates.items():
            if not ("hangs, meanwhile" in name and "on the target that hangs" in name):
                self.assertGreater(rate, 0, name)

    def test_nothing_is_left_after_an_interruption(self):
        process = self.start("--device", "channels", "--only", "sharing")

        def place():
            """The device is there, and its directory known"""
            self.assertIsNone(process.poll(), process.stderr.read() if process.poll() is not None else "")
            for child in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
                try:
                    words = Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")
                except FileNotFoundError:
                    continue
                if b"device" in words:
                    found = Path(os.fsdecode(words[words.index(b"device") + 1]))
                    return found if (found / "plain").exists() else None
            return None

        place = wait_for(place, seconds=60)
        self.assertTrue(os.path.ismount(place))
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        self.assertEqual(1, process.returncode, err)
        self.assertIn("interrupted", err)
        self.assertFalse(place.parent.exists(), err)
        self.assertNotIn(str(place), Path("/proc/self/mounts").read_text())
