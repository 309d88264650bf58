"""MPI programs of two ranks through both ways: LAMMPS, parallel HDF5, and mpi4py's own tests of MPI-IO."""

import subprocess
import sys
from pathlib import Path

import service
from service import MountedCase, SameAsLocalCase

PROGRAMS = Path(__file__).resolve().parent / "programs"
# Ranks that share few cores yield to each other. What mpirun keeps for itself lies outside the prefix.
OPEN_MPI = "mpirun.openmpi --oversubscribe --mca mpi_yield_when_idle 1 -np 2"
ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
MPICH = {"MPIR_CVAR_POLLS_BEFORE_YIELD": "1", "UCX_TLS": "self,sm"}
# Debian's, which has parallel HDF5.
SYSTEM_PYTHON = "/usr/bin/python3"
# Non-blocking collective calls of Open MPI's copy of ROMIO end in a null pointer on every file system.
NOT_BLOCKING_TOGETHER = ["-x", "*IReadIWrite*All*"]


def has_parallel_hdf5():
    test = [SYSTEM_PYTHON, "-c", "import h5py, mpi4py; assert h5py.get_config().mpi"]
    env = service.clean_environment() | {"H5PY_ALWAYS_USE_MPI": "1"}
    return Path(SYSTEM_PYTHON).exists() and not subprocess.run(test, capture_output=True, env=env, timeout=60).returncode


class Mpi(SameAsLocalCase):
    def test_lammps_writes_restarts_and_goes_on_from_one(self):
        self.needs("mpirun.openmpi", "lmp")
        run = f"{OPEN_MPI} lmp -log none -screen none -in {PROGRAMS}"
        self.same(f"{run}/lammps-checkpoint.in -var size 10 && {run}/lammps-continue.in; ls", env=ROOT)

    def test_parallel_hdf5(self):
        self.needs("mpirun.openmpi")
        if not has_parallel_hdf5():
            self.skipTest(f"{SYSTEM_PYTHON} has no h5py with MPI: Debian's python3-h5py-mpi")
        for component in ["ompio", "romio321"]:
            with self.subTest(component):
                done = self.same(f"{OPEN_MPI} --mca io {component} {SYSTEM_PYTHON} {PROGRAMS}/parallel_hdf5.py {component}.h5", env=ROOT)
                self.assertRegex(done.stdout, r"^2 chunked=(\d+) contiguous=\1 interleaved=\1\n$", done.stderr)

    def test_parallel_hdf5_in_c(self):
        for mpi, start in [("mpich", "mpirun.mpich -np 2"), ("ompio", f"{OPEN_MPI} --mca io ompio"), ("romio321", f"{OPEN_MPI} --mca io romio321")]:
            with self.subTest(mpi):
                compiler = "h5pcc.mpich" if mpi == "mpich" else "h5pcc.openmpi"
                self.needs(start.split()[0], compiler)
                directory = self.directory_for_programs()
                program = directory / "parallel_hdf5"
                compiling = subprocess.run([compiler, "-shlib", "-Wall", "-o", program, f"{PROGRAMS}/parallel_hdf5.c"], cwd=directory, capture_output=True, text=True, timeout=60)
                self.assertEqual(compiling.returncode, 0, compiling.stderr)
                done = self.same(f"{start} {program} {mpi}.h5", env=ROOT | MPICH)
                self.assertEqual(done.stdout, "2 ranks wrote and read\n", done.stderr)

    def test_mpi4py_on_ompio(self):
        self.mpi4py(f"{OPEN_MPI} --mca io ompio")

    def test_mpi4py_on_open_mpis_romio(self):
        self.mpi4py(f"{OPEN_MPI} --mca io romio321", *NOT_BLOCKING_TOGETHER)

    def test_mpi4py_on_mpich(self):
        self.mpi4py("mpirun.mpich -np 2")

    def mpi4py(self, start, *selection):
        self.needs(start.split()[0])
        tests = Path(service.isonomia()).parents[1] / "suites/mpi4py/test/runtests.py"
        python = tests.parents[3] / "venv/bin/python"
        if not tests.exists() or subprocess.run([python, "-c", "import mpi4py"], capture_output=True).returncode:
            self.skipTest("mpi4py's tests are not installed: scripts/setup acceptance does it")
        env = ROOT | {"MPI4PY_MPIABI": "openmpi"}
        if "mpich" in start:
            # Debian names the library so that it can stand beside Open MPI's.
            library = self.local / "libmpi.so.12"
            library.symlink_to(f"/usr/lib/{sys.implementation._multiarch}/libmpich.so.12")
            env = MPICH | {"MPI4PY_MPIABI": "mpich", "LD_LIBRARY_PATH": str(self.local)}
        patterns = " ".join(f"'{word}'" for word in selection)
        done = self.bash(f"{start} env TMPDIR=$PWD {python} {tests} -q {patterns} test_io test_file", env=env)
        self.assertRegex(done.stderr, r"Ran (\d\d+) tests (?s:.*)OK.*(?s:.*)Ran \1 tests (?s:.*)OK")


class MpiMounted(MountedCase, Mpi):
    """The same through a mount."""
