"""What looks for damaged data and for deviations from POSIX: fio, fsx, stress-ng's file-system class, and pjdfstest.

Those on a mount are in `test_mount` as well.
"""

import os
import re
import shutil
import subprocess
import tempfile

from service import PROGRAM_S, TEST_S, Case, Mount, SharedServerCase, why_no_mount
from test_mount import PJDFSTEST_CONFIGURATION, suite

FSX_OPERATIONS = 20_000
# Without what the preload library refuses: writable shared mappings, and copies within the kernel.
FSX_CONFIGURATION = """
flen = 262144
[opsize]
max = 65536
[weights]
close_open = 1
truncate = 10
write = 20
read = 20
mapread = 0
mapwrite = 0
invalidate = 0
fsync = 1
fdatasync = 1
copy_file_range = 0
sendfile = 0
posix_fadvise = 2
posix_fallocate = 2
punch_hole = 4
"""
# What of stress-ng's class of file systems is not about files in a directory, but about kernel services of other names.
NOT_ABOUT_FILES = {"bind-mount", "binderfs", "dup", "eventfd", "ioprio", "procfs"}
# Those and `io`, which syncs every file system of the host, also those that fail because another test wants them to.
LEFT_OUT = NOT_ABOUT_FILES | {"io"}


# Tests of pjdfstest that cannot pass under the preload library, by a part of their names.
NOT_PRELOADED = [
    # A wrong address ends the program.
    "efault",
    # Sockets are bound in the kernel's file systems only, and nothing is mounted below the prefix.
    "socket", "rmdir::ebusy",
    # A running program can be written to.
    "etxtbsy",
]  # fmt: skip


class Stress(SharedServerCase):
    def test_fio_verifies_with_every_engine_that_is_served(self):
        for engine in ["psync", "sync", "pvsync2", "posixaio"]:
            with self.subTest(engine):
                # fio keeps its own state where it may be mapped.
                self.run_here("fio", f"--name={engine}", f"--directory={self.directory}", f"--ioengine={engine}", "--iodepth=8", "--rw=randwrite",
                              "--size=16m", "--bsrange=4k-256k", "--blockalign=4k", "--numjobs=2", "--verify=crc32c", "--do_verify=1",
                              "--verify_fatal=1", "--group_reporting", "--minimal", env={"TMPDIR": str(self.local)})  # fmt: skip

    def test_fsx_finds_no_divergence(self):
        fsx = suite("fsx")
        if not fsx.exists():
            self.skipTest("fsx is not installed: scripts/setup acceptance does it")
        configuration = self.local / "fsx.toml"
        configuration.write_text(FSX_CONFIGURATION)
        for seed in [3, 4]:
            with self.subTest(seed):
                self.run_here(fsx, "-q", "-f", configuration, "-P", self.local, "-N", FSX_OPERATIONS, "-S", seed, f"{self.directory}/f{seed}")

    def test_pjdfstest_passes_but_for_what_the_library_leaves_out(self):
        if os.geteuid() != 0 or not suite("pjdfstest").exists():
            self.skipTest("pjdfstest needs root, and scripts/setup acceptance to install it")
        configuration = self.local / "pjdfstest.toml"
        configuration.write_text(PJDFSTEST_CONFIGURATION)
        memory = tempfile.mkdtemp(dir="/dev/shm")
        self.addCleanup(shutil.rmtree, memory)
        command = [suite("pjdfstest"), "-c", configuration, "-p"]
        local = subprocess.run([*command, memory], capture_output=True, text=True, timeout=PROGRAM_S).stdout
        names = [name for name in re.findall(r"^(\w+::\S+)\s+ok$", local, re.MULTILINE) if not any(part in name for part in NOT_PRELOADED)]
        self.assertGreater(len(names), 250, local[-2000:])
        # A pattern selects every test that it is a part of; the last part of a name may be a type of file, which is not part of the pattern.
        patterns = sorted({re.sub("::(regular|dir|fifo|block|char|symlink)$", "", name) for name in names})
        served = self.run_here(*command, self.directory, *patterns, check=False).stdout
        passed = set(re.findall(r"^(\w+::\S+)\s+ok$", served, re.MULTILINE))
        self.assertEqual(set(), set(names) - passed, served[-8000:])


class StressMounted(Case):
    def test_stress_ng_verifies_what_it_did(self):
        if reason := why_no_mount():
            self.skipTest(reason)
        self.needs("stress-ng")
        server = self.server()
        mount = Mount(server)
        self.addCleanup(mount.remove)
        place = mount.start().place
        listed = subprocess.run(["stress-ng", "--class", "filesystem?"], capture_output=True, text=True, timeout=30)
        stressors = sorted(set((listed.stdout + listed.stderr).split("stressors:")[1].split()) - LEFT_OUT)
        # Two sequences beside each other, a second for each stressor; one leaves out what the other does.
        processes = [
            subprocess.Popen(
                ["stress-ng", "--seq", "1", "--class", "filesystem", "--exclude", ",".join([*LEFT_OUT, *stressors[half::2]]),
                 "--timeout", "1s", "--verify", "--temp-path", place],
                cwd=place, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            )
            for half in [0, 1]
        ]  # fmt: skip
        # What `io` would do, to this file system alone; ends when it fails.
        syncs = subprocess.Popen(["bash", "-c", "while sync --file-system .; do :; done"], cwd=place)
        for process in [syncs, *processes]:
            self.addCleanup(process.wait)
            self.addCleanup(process.kill)
        for process in processes:
            out, _ = process.communicate(timeout=TEST_S)
            self.assertEqual(0, process.returncode, out)
            self.assertIn("successful run completed", out)
            self.assertNotRegex(out, r"(?m)^stress-ng: (fail|error)")
        self.assertIsNone(syncs.poll(), "a sync of the file system failed")
