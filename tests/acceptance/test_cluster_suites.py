"""What looks for damaged data and for deviations from POSIX, on files that are striped over four servers."""

import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import test_cluster
import test_mpi
import test_static
import test_suites
from cluster_on_hosts import CLIENTS, Cluster, ClusterMount
from hosts import Network, can_have_hosts
from service import PREFIX, PROGRAM_S, Case, Mount, SharedServerCase, clean_environment, isonomia, why_no_mount
from test_mount import FSX_CONFIGURATION, pjdfstest_only_fails_in, suite

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
    """Programs of two hosts: one has a server, with which it has shared memory, and the other reaches all of them by TCP."""

    HOSTS = [2, CLIENTS]
    MPI_ON_TCP = "--mca btl self,tcp --mca pml ob1 --mca btl_tcp_if_include net0 --mca oob_tcp_if_include net0"

    def setUp(self):
        super().setUp()
        if not can_have_hosts():
            self.skipTest("network namespaces need root and ip")
        self.cluster = striped_on_hosts(self.addCleanup)
        self.network, self.directory = self.cluster.network, f"{PREFIX}/w0"

    def test_random_operations_under_locks_on_one_file(self):
        with tempfile.NamedTemporaryFile(dir="/dev/shm") as model:
            model.truncate(MODEL_BYTES)
            programs = []
            # In two directions, so that each host begins at another server.
            addresses = [addresses[0] for addresses in self.cluster.addresses.values()]
            for seed, (host, known) in enumerate(zip(self.HOSTS, [addresses, addresses[::-1]]), 7):
                program = ["python3", LOCKED_FSX, f"{self.directory}/file", model.name, str(seed), str(OPERATIONS)]
                reach = ["--server", ",".join(known), "--key-file", str(self.cluster.key_file)]
                process = subprocess.Popen(
                    [*self.network.within(host), isonomia(), "run", *reach, "--", *map(str, program)],
                    stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=clean_environment(),
                )  # fmt: skip
                self.addCleanup(process.kill)
                programs.append(process)
            for process in programs:
                out, err = process.communicate(timeout=2 * PROGRAM_S)
                self.assertEqual((out, process.returncode), ("done\n", 0), err)

    def mpi4py(self, start, *selection, mounted=False):
        """mpi4py's tests of MPI-IO, with a rank on each host."""
        self.needs(start.split()[0])
        tests = Path(isonomia()).parents[1] / "suites/mpi4py/test/runtests.py"
        python = tests.parents[3] / "venv/bin/python"
        if not tests.exists() or subprocess.run([python, "-c", "import mpi4py"], capture_output=True).returncode:
            self.skipTest("mpi4py's tests are not installed: scripts/setup acceptance does it")
        if mounted and (reason := why_no_mount()):
            self.skipTest(reason)
        local = self.cluster.directory
        shell = local / "shell"
        self.network.make_shell(shell)
        reach = ["--timeout", "60s", *self.cluster.reach(), "--"]
        run, directory = [isonomia(), "run", *reach], self.directory
        if mounted:
            for host in self.HOSTS:
                mount = ClusterMount(self.cluster, host)
                self.addCleanup(mount.remove)
                mount.start()
            # Where each host has its own.
            run, directory = [], f"{self.network.own}/mount/w0"
        here, there = map(self.network.address, self.HOSTS)
        if "mpich" in start:
            library = local / "libmpi.so.12"
            library.symlink_to(f"/usr/lib/{sys.implementation._multiarch}/libmpich.so.12")
            env = {"MPI4PY_MPIABI": "mpich", "LD_LIBRARY_PATH": str(local), "MPIR_CVAR_POLLS_BEFORE_YIELD": "1"}
            env |= {"UCX_TLS": "self,tcp", "UCX_NET_DEVICES": "net0"}
            start = f"{start} -localhost {here} -launcher ssh -launcher-exec {shell} -hosts {here},{there} -ppn 1 -n 2"
        else:
            env = test_mpi.ROOT | {"MPI4PY_MPIABI": "openmpi"}
            start = f"{start} {self.MPI_ON_TCP} --mca plm_rsh_agent {shell} --host {here},{there} -n 2"
        rank = [*run, "env", f"TMPDIR={directory}", *(f"{name}={value}" for name, value in env.items())]
        rank += [python, tests, "-q", *(word for pattern in selection for word in pattern), "test_io", "test_file"]
        # As a user would who is on the first of them.
        command = ["cd", local, "&&", *start.split(), *rank]
        done = subprocess.run(
            [shell, here, " ".join(word if word == "&&" else shlex.quote(str(word)) for word in command)],
            env=clean_environment() | env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=2 * PROGRAM_S,
        )  # fmt: skip
        self.assertRegex(
            done.stderr, r"Ran (\d\d+) tests (?s:.*)OK.*(?s:.*)Ran \1 tests (?s:.*)OK", f"{done.stdout[-2000:]}\n{done.stderr[-6000:]}"
        )

    def test_mpi4py_on_ompio(self):
        self.mpi4py("mpirun.openmpi --mca mpi_yield_when_idle 1 --mca io ompio")

    def test_mpi4py_on_open_mpis_romio(self):
        self.mpi4py("mpirun.openmpi --mca mpi_yield_when_idle 1 --mca io romio321", test_mpi.NOT_BLOCKING_TOGETHER)

    def test_mpi4py_on_mpich(self):
        self.mpi4py("mpirun.mpich")

    def test_mpi4py_on_ompio_on_mounts(self):
        self.mpi4py("mpirun.openmpi --mca mpi_yield_when_idle 1 --mca io ompio", mounted=True)


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


def striped_on_hosts(add_cleanup):
    """The same with each server on a host of its own, if there can be any: who is on one of them reaches the others by TCP."""
    network = None
    if can_have_hosts():
        network = Network(CLIENTS)
        add_cleanup(network.remove)
    cluster = Cluster(network, below="/dev/shm")
    add_cleanup(cluster.remove)
    cluster.start().operate("stripe", "set", "--count", str(SERVERS), "--size", "4KiB", f"{PREFIX}/w0")
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


class H5pyOnStripes(SharedServerCase):
    BELOW = f"{PREFIX}/w0"
    test_h5py = test_suites.Suites.test_h5py

    @classmethod
    def setUpClass(cls):
        cls.shared = striped_on_hosts(cls.addClassCleanup).members[3]


class Striped(Case):
    def test_pjdfstest_fails_nowhere_where_tmpfs_does_not(self):
        if os.geteuid() != 0 or not suite("pjdfstest").exists():
            self.skipTest("pjdfstest needs root, and scripts/setup acceptance to install it")
        if reason := why_no_mount():
            self.skipTest(reason)
        # On one host: by a key on TCP nobody is asked for but its owner.
        cluster = striped_cluster()
        self.addCleanup(cluster.remove)
        mount = Mount(cluster.members[2], "-o", "dev,suid")
        self.addCleanup(mount.remove)
        place = mount.start().place / "v"
        self.assertEqual({}, pjdfstest_only_fails_in(self, place / "pjdfstest", cluster.directory))

    def test_fsx_through_a_mount_finds_no_divergence(self):
        if not suite("fsx").exists():
            self.skipTest("fsx is not installed: scripts/setup acceptance does it")
        if reason := why_no_mount():
            self.skipTest(reason)
        cluster = striped_on_hosts(self.addCleanup)
        mount = ClusterMount(cluster, 3)
        self.addCleanup(mount.remove)
        place = mount.start().place / "w0"
        configuration = cluster.directory / "fsx.toml"
        configuration.write_text(FSX_CONFIGURATION)
        command = [suite("fsx"), "-q", "-f", configuration, "-N", CUT_OPERATIONS, "-S", "3", place / "fsx"]
        done = subprocess.run(
            list(map(str, command)), cwd=cluster.directory, capture_output=True, text=True, timeout=2 * PROGRAM_S
        )
        self.assertEqual(done.returncode, 0, done.stdout[-3000:] + done.stderr[-3000:])

    def test_fsspecs_own_suite(self):
        python = Path(isonomia()).parents[1] / "venv/bin/python"
        if subprocess.run([python, "-c", "import isonomia, fsspec, pytest"], capture_output=True).returncode:
            self.skipTest("the Python package is not installed: scripts/setup acceptance does it")
        cluster = striped_cluster()
        self.addCleanup(cluster.remove)
        env = {"ISONOMIA_SERVER": cluster.members[2].address, "SUITE_DIRECTORY": "/v"}
        done = subprocess.run(
            [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", FSSPEC_SUITE],
            env=clean_environment() | env, capture_output=True, text=True, timeout=2 * PROGRAM_S,
        )  # fmt: skip
        self.assertRegex(done.stdout, r"\d\d+ passed", done.stdout[-3000:] + done.stderr[-3000:])
        self.assertEqual(done.returncode, 0, done.stdout[-8000:])
