"""What looks for damaged data and for deviations from POSIX, on files that are striped over four servers."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import test_cluster
import test_faults_cluster
import test_mpi
import test_static
import test_suites
from hosts import Network, can_have_hosts
from service import PREFIX, PROGRAM_S, Case, Mount, SharedServerCase, clean_environment, isonomia, why_no_mount
from test_mount import FSX_CONFIGURATION, PJDFSTEST_CONFIGURATION, suite

FSSPEC_SUITE = Path(__file__).resolve().parents[1] / "python/fsspec_suite.py"
LOCKED_FSX = Path(__file__).parent / "programs" / "locked_fsx.py"
# Of each program. Each takes a lock, which is a round trip or two.
OPERATIONS = 1_500
# Of fsx through a mount: many of its operations cut the file, and each cut takes all servers.
CUT_OPERATIONS = 3_000
# Bytes of the model, and what stands before them.
MODEL_BYTES = 8 + (256 << 10)
SERVERS = 4


class TwoHosts(Case):
    """Programs of two hosts, neither of which has a server."""

    def test_random_operations_under_locks_on_one_file(self):
        if not can_have_hosts():
            self.skipTest("network namespaces need root and ip")
        network = Network(test_faults_cluster.CLIENTS)
        self.addCleanup(network.remove)
        cluster = test_faults_cluster.Cluster(network)
        self.addCleanup(cluster.remove)
        cluster.start()
        directory = f"{PREFIX}/w0"
        cluster.operate("stripe", "set", "--count", str(SERVERS), "--size", "4KiB", directory)
        with tempfile.NamedTemporaryFile(dir="/dev/shm") as model:
            model.truncate(MODEL_BYTES)
            programs = []
            # In two directions, so that each host begins at another server.
            addresses = [addresses[0] for addresses in cluster.addresses.values()]
            for seed, (host, known) in enumerate(
                [(test_faults_cluster.SPARE, addresses), (test_faults_cluster.CLIENTS, addresses[::-1])], 7
            ):
                program = ["python3", LOCKED_FSX, f"{directory}/file", model.name, str(seed), str(OPERATIONS)]
                reach = ["--server", ",".join(known), "--key-file", str(cluster.key_file)]
                process = subprocess.Popen(
                    [*network.within(host), isonomia(), "run", *reach, "--", *map(str, program)],
                    stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=clean_environment(),
                )  # fmt: skip
                self.addCleanup(process.kill)
                programs.append(process)
            for process in programs:
                out, err = process.communicate(timeout=2 * PROGRAM_S)
                self.assertEqual((out, process.returncode), ("done\n", 0), err)


def striped_cluster():
    """A cluster with a volume of the first server, with stripes of 4 KiB on each server."""
    # In memory: nobody loses power here, and each cut of a file waits for the storage of all servers.
    cluster = test_cluster.Cluster(SERVERS, below="/dev/shm")
    try:
        first = cluster.start().members[0]
        first.operate("volume", "create", "v", "--on", first.name)
        first.operate("stripe", "set", "--count", str(SERVERS), "--size", "4KiB", f"{PREFIX}/v")
    except BaseException:
        cluster.remove()
        raise
    return cluster


class OnStripes:
    """What a class of tests does on one server, in directories with stripes on four, by the address of one that has not the volume."""

    BELOW = f"{PREFIX}/v"

    @classmethod
    def setUpClass(cls):
        cluster = striped_cluster()
        cls.addClassCleanup(cluster.remove)
        cls.shared = cluster.members[2]


class StaticOnStripes(OnStripes, test_static.Static):
    pass


class H5pyOnStripes(OnStripes, SharedServerCase):
    test_h5py = test_suites.Suites.test_h5py


class Striped(Case):
    def setUp(self):
        super().setUp()
        self.cluster = striped_cluster()
        self.addCleanup(self.cluster.remove)
        self.first = self.cluster.members[0]

    def test_pjdfstest_fails_nowhere_where_tmpfs_does_not(self):
        if os.geteuid() != 0 or not suite("pjdfstest").exists():
            self.skipTest("pjdfstest needs root, and scripts/setup acceptance to install it")
        if reason := why_no_mount():
            self.skipTest(reason)
        mount = Mount(self.cluster.members[2], "-o", "dev,suid")
        self.addCleanup(mount.remove)
        place = mount.start().place / "v"
        configuration = self.cluster.directory / "pjdfstest.toml"
        configuration.write_text(PJDFSTEST_CONFIGURATION)
        memory = Path(tempfile.mkdtemp(dir="/dev/shm"))
        self.addCleanup(shutil.rmtree, memory)
        failures = []
        for directory in [memory, place / "pjdfstest"]:
            directory.mkdir(exist_ok=True)
            directory.chmod(0o755)
            done = subprocess.run(
                [suite("pjdfstest"), "-c", configuration, "-p", directory],
                capture_output=True, text=True, timeout=2 * PROGRAM_S,
            )  # fmt: skip
            self.assertRegex(done.stdout, r"\n\s*Summary:.* \d+ total", done.stderr)
            failures.append(set(re.findall(r"^(\S+)\s+FAILED", done.stdout, re.MULTILINE)))
            self.assertGreater(int(re.search(r"(\d+) passed", done.stdout)[1]), 300)
        self.assertEqual(set(), failures[1] - failures[0])

    def test_fsx_through_a_mount_finds_no_divergence(self):
        if not suite("fsx").exists():
            self.skipTest("fsx is not installed: scripts/setup acceptance does it")
        if reason := why_no_mount():
            self.skipTest(reason)
        mount = Mount(self.cluster.members[2])
        self.addCleanup(mount.remove)
        place = mount.start().place / "v"
        configuration = self.cluster.directory / "fsx.toml"
        configuration.write_text(FSX_CONFIGURATION)
        command = [suite("fsx"), "-q", "-f", configuration, "-N", CUT_OPERATIONS, "-S", "3", place / "fsx"]
        done = subprocess.run(
            list(map(str, command)), cwd=self.cluster.directory, capture_output=True, text=True, timeout=2 * PROGRAM_S
        )
        self.assertEqual(done.returncode, 0, done.stdout[-3000:] + done.stderr[-3000:])

    def test_fsspecs_own_suite(self):
        python = Path(isonomia()).parents[1] / "venv/bin/python"
        if subprocess.run([python, "-c", "import isonomia, fsspec, pytest"], capture_output=True).returncode:
            self.skipTest("the Python package is not installed: scripts/setup acceptance does it")
        env = {"ISONOMIA_SERVER": self.cluster.members[2].address, "SUITE_DIRECTORY": "/v"}
        done = subprocess.run(
            [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", FSSPEC_SUITE],
            env=clean_environment() | env, capture_output=True, text=True, timeout=2 * PROGRAM_S,
        )  # fmt: skip
        self.assertRegex(done.stdout, r"\d\d+ passed", done.stdout[-3000:] + done.stderr[-3000:])
        self.assertEqual(done.returncode, 0, done.stdout[-8000:])

    def mpi4py(self, start, *selection):
        """One rank beside a server, and one that reaches another server by TCP, as from another host."""
        self.needs(start.split()[0])
        tests = Path(isonomia()).parents[1] / "suites/mpi4py/test/runtests.py"
        python = tests.parents[3] / "venv/bin/python"
        if not tests.exists() or subprocess.run([python, "-c", "import mpi4py"], capture_output=True).returncode:
            self.skipTest("mpi4py's tests are not installed: scripts/setup acceptance does it")
        local = Path(tempfile.mkdtemp(prefix="isonomia-local-"))
        self.addCleanup(shutil.rmtree, local, ignore_errors=True)
        env = test_mpi.ROOT | {"MPI4PY_MPIABI": "openmpi"}
        if "mpich" in start:
            library = local / "libmpi.so.12"
            library.symlink_to(f"/usr/lib/{sys.implementation._multiarch}/libmpich.so.12")
            env = test_mpi.MPICH | {"MPI4PY_MPIABI": "mpich", "LD_LIBRARY_PATH": str(local)}
        member = self.cluster.members[1]
        over_tcp = next(address for address in member.ready["listen"] if address.startswith("tcp:"))
        rank = [python, tests, "-q", *(word for pattern in selection for word in pattern), "test_io", "test_file"]
        command = start.split()
        for number, address in enumerate([self.first.address, over_tcp]):
            command += [":"] if number else []
            command += ["-n", "1", isonomia(), "run", "--server", address, "--key-file", self.cluster.key_file, "--"]
            command += ["env", f"TMPDIR={PREFIX}/v", *rank]
        done = subprocess.run(
            list(map(str, command)), cwd=local, env=clean_environment() | env, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=2 * PROGRAM_S,
        )  # fmt: skip
        self.assertRegex(done.stderr, r"Ran (\d\d+) tests (?s:.*)OK.*(?s:.*)Ran \1 tests (?s:.*)OK", done.stdout[-2000:])

    def test_mpi4py_on_ompio(self):
        self.mpi4py("mpirun.openmpi --oversubscribe --mca mpi_yield_when_idle 1 --mca io ompio")

    def test_mpi4py_on_open_mpis_romio(self):
        self.mpi4py(
            "mpirun.openmpi --oversubscribe --mca mpi_yield_when_idle 1 --mca io romio321", test_mpi.NOT_BLOCKING_TOGETHER
        )

    def test_mpi4py_on_mpich(self):
        self.mpi4py("mpirun.mpich")
