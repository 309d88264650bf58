"""The test suites of CPython and h5py, with their temporary files on the server."""

import functools
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import service
from service import MountedCase, SharedServerCase

# Those about files.
MODULES = ["test_fileio", "test_file", "test_os", "test_shutil", "test_tempfile", "test_mmap", "test_posix", "test_glob",
           "test_zipfile", "test_dbm_dumb", "test_shelve", "test_filecmp", "test_fileinput", "test_largefile", "test_pathlib"]  # fmt: skip
# Paths of thirty directories a hundred times, and mappings of gigabytes: benchmarks, not tests.
LARGE = ["test_walk_many_open_files", "test_glob_many_open_files", "test_around_*GB", "test_large_*"]
# What the preload library refuses, each with the errno that its page on semantics names.
REFUSED = {
    # Between files of the prefix there is no way within the kernel: programs read and write.
    "test_copy_file_range", "test_copy_file_range_offset", "test_splice", "test_splice_offset_in", "test_splice_offset_out",
    "test_keywords", "test_send_at_certain_offset", "test_send_whole_file",
    # Unix sockets are bound in the kernel's file systems only.
    "test_is_socket_true",
}  # fmt: skip
LIMIT_S = 280


@functools.cache
def python_with_tests():
    """A Python that has its own tests, or None."""
    for python in [shutil.which("python3"), "/usr/bin/python3"]:
        if python and not subprocess.run([python, "-c", "import test.test_fileio, test.test_os"], capture_output=True).returncode:
            return python
    return None


@functools.cache
def h5py_failures_locally():
    """What fails in h5py's suite on any file system, such as tests of permissions for root."""
    with tempfile.TemporaryDirectory() as directory:
        done = subprocess.run(
            h5py_command(), cwd=directory, env=service.clean_environment() | {"TMPDIR": directory}, capture_output=True, text=True, timeout=LIMIT_S
        )
    return h5py_failures(done.stdout)


def h5py_command():
    python = Path(service.isonomia()).parents[1] / "venv/bin/python"
    return [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "ignore", "-rfE", "--pyargs", "h5py"]


def h5py_failures(output):
    if not re.search(r"[6-9]\d\d passed", output):
        raise AssertionError(f"h5py's tests did not run:\n{output[-3000:]}")
    return set(re.findall(r"^(?:FAILED|ERROR) \S*?(\w+\.py::\S+)", output, re.MULTILINE))


class Suites(SharedServerCase):
    EXPECTED = REFUSED

    def test_cpython(self):
        if not (python := python_with_tests()):
            self.skipTest("no Python here has its own tests: Debian's libpython3-testsuite")

        def run(*options):
            """What the tests said, and how many ran and which failed."""
            done = self.run_here(python, "-m", "test", "--timeout", str(LIMIT_S), "--tempdir", self.directory, "-W", *options,
                                 *MODULES, env={"TMPDIR": self.directory}, check=False, limit_s=LIMIT_S)  # fmt: skip
            out = done.stdout + done.stderr
            total = re.search(r"Total tests: run=([\d,]+)", out)
            self.assertTrue(total, out[-3000:])
            failed = set(re.findall(r"^(?:ERROR|FAIL): (\w+)", out, re.MULTILINE))
            self.assertEqual(bool(failed), bool(done.returncode), out[-3000:])
            return out, int(total[1].replace(",", "")), failed

        out, count, failed = run(*(word for name in LARGE for word in ["-i", name]))
        self.assertIn(count, range(1000, 2000), out[-3000:])
        # Some compare times with the clock and allow 50 ms, for which a process may have no processor. What is wrong fails again.
        if unexpected := failed - self.EXPECTED:
            again, count, failed = run(*(word for name in unexpected for word in ["-m", name]))
            self.assertGreaterEqual(count, len(unexpected), again[-3000:])
            self.assertEqual(set(), failed, (out + again)[-8000:])

    def test_h5py(self):
        if subprocess.run([*h5py_command()[:1], "-c", "import h5py, pytest"], capture_output=True).returncode:
            self.skipTest("h5py is not installed: scripts/setup acceptance does it")
        done = self.run_here(*h5py_command(), env={"TMPDIR": self.directory}, check=False, limit_s=LIMIT_S)
        self.assertEqual(set(), h5py_failures(done.stdout) - h5py_failures_locally(), done.stdout[-8000:])


class SuitesMounted(MountedCase, Suites):
    """The same through a mount, where nothing is refused."""

    EXPECTED = set()
