"""What MPI and HDF5 know of files reaches the preload client and the server, and the calls do what they do without."""

import re
import subprocess
import tempfile
from pathlib import Path

import service
from service import PREFIX, Case

PROGRAMS = Path(__file__).resolve().parent / "programs"
SYSTEM_PYTHON = "/usr/bin/python3"
# Open MPI is started by root here, and Debian's h5py has a version with MPI beside the other.
ENVIRONMENT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "H5PY_ALWAYS_USE_MPI": "1"}
OPEN_MPI = "mpirun.openmpi --oversubscribe --mca mpi_yield_when_idle 1 -np 2".split()
STARTS = {
    "mpich": ["mpirun.mpich", "-np", "2"],
    "ompio": [*OPEN_MPI, "--mca", "io", "ompio"],
    "romio321": [*OPEN_MPI, "--mca", "io", "romio321"],
}
# Of a file that two ranks write together, and of one of each rank's own, as the listener prints them.
SHARED = "0 of 2 shared {0}|1 of 2 shared {0}"
OWN = "{0} of 2 own 0"
GONE = "0 of 0 own 0"


PROBES = {
    ".c": "#include <mpi.h>\nint main(void) { return 0; }\n",
    ".f90": "include 'mpif.h'\nend\n",
}


class Hints(Case):
    def setUp(self):
        super().setUp()
        directory = tempfile.TemporaryDirectory(prefix="isonomia-local-")
        self.addCleanup(directory.cleanup)
        self.local = Path(directory.name)

    def compile(self, source, compiler):
        self.needs(compiler)
        # A compiler's wrapper may be there without what it includes and links.
        probe = self.local / f"probe{Path(source).suffix}"
        probe.write_text(PROBES[probe.suffix])
        if compiler != "gcc" and subprocess.run([compiler, probe, "-o", self.local / "probe"], cwd=self.local, capture_output=True, timeout=60).returncode:
            self.skipTest(f"{compiler} cannot compile: Debian's libopenmpi-dev, libmpich-dev, gfortran, libhdf5-openmpi-dev, libhdf5-mpich-dev")
        program = self.local / f"{Path(source).stem}-{compiler}"
        shared = {"gcc": ["-shared", "-fPIC"], "h5pfc": ["-shlib"]}.get(compiler.split(".")[0], [])
        subprocess.run([compiler, "-Wall", *shared, str(PROGRAMS / source), "-o", str(program)], cwd=self.local, check=True, timeout=60)
        return program

    def hints_library(self):
        return Path(service.isonomia()).parent / "libisonomia_hints.so"

    def said(self, command):
        """The hints that a program gives on local files, by file; each is taken back."""
        preload = f"{self.hints_library()}:{self.compile('hint_listener.c', 'gcc')}"
        done = subprocess.run(
            [str(word) for word in command],
            env=service.clean_environment() | ENVIRONMENT | {"LD_PRELOAD": preload},
            cwd=self.local,
            capture_output=True,
            text=True,
            timeout=service.PROGRAM_S,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        hints = {}
        for path, hint in re.findall(r"^(\S+) (\d+ of \d+ (?:own|shared) \d+)$", done.stderr, re.MULTILINE):
            hints.setdefault(Path(path).name, []).append(hint)
        for name, given in hints.items():
            self.assertEqual(given.count(GONE), len(given) - given.count(GONE), f"{name}: {given}")
        return {name: sorted(set(given) - {GONE}) for name, given in hints.items()}

    def served(self, command):
        """The hints that come with files that a program creates on a server."""
        server = self.server(env={"ISONOMIA_LOG": "debug"})
        server.run(*command, more=["--hints"], env=ENVIRONMENT)
        pattern = r"created with a hint.* rank: (\d+), ranks: (\d+), shared: (\w+), expected_bytes: (\d+)"
        return server, sorted(re.findall(pattern, re.sub(r"\x1b\[\d*m", "", server.log(1000))))

    def contents(self, server, *names):
        return server.run("cat", *(f"{PREFIX}/{name}" for name in names)).stdout

    def test_mpi_in_c(self):
        for mpi, start in STARTS.items():
            with self.subTest(mpi):
                compiler = "mpicc.mpich" if mpi == "mpich" else "mpicc.openmpi"
                program = [*start, self.compile("hints.c", compiler)]
                romio = [] if mpi == "ompio" else ["with the file system's name"]
                expected = {"f": SHARED.format(8192).split("|"), "x": SHARED.format(0).split("|")}
                expected |= {f"f.{rank}": [OWN.format(rank)] for rank in range(2)}
                self.assertEqual(self.said([*program, self.local / "f", *romio]), expected)
                server, created = self.served([*program, f"{PREFIX}/f", *romio])
                own = [(str(rank), "2", "false", "0") for rank in range(2)]
                # One rank creates the file that they share.
                shared = [hint for hint in created if hint not in own]
                self.assertIn(shared, [[(str(rank), "2", "true", "8192")] for rank in range(2)], created)
                self.assertEqual([hint for hint in created if hint in own], own)
                self.assertEqual(self.contents(server, "f"), "a" * 4096 + "b" * 4096)
                self.assertEqual(self.contents(server, "f.0", "f.1"), "a" * 4096 + "b" * 4096)

    def test_mpi_in_fortran(self):
        for mpi, start in STARTS.items():
            with self.subTest(mpi):
                compiler = "mpif90.mpich" if mpi == "mpich" else "mpif90.openmpi"
                program = [*start, self.compile("hints.f90", compiler)]
                self.assertEqual(self.said([*program, self.local / "f"]), {"f": SHARED.format(16).split("|")})
                server, created = self.served([*program, f"{PREFIX}/f"])
                self.assertIn(created, [[(str(rank), "2", "true", "16")] for rank in range(2)])
                self.assertEqual(self.contents(server, "f"), "a" * 8 + "b" * 8)

    def test_mpi_and_hdf5_in_fortran_2008(self):
        for mpi, start in STARTS.items():
            with self.subTest(mpi):
                program = [*start, self.compile("hints_f08.f90", "h5pfc.mpich" if mpi == "mpich" else "h5pfc.openmpi")]
                hints = self.said([*program, self.local / "f"])
                self.assertEqual(hints["f"], SHARED.format(16).split("|"))
                self.assertLessEqual(set(SHARED.format(0).split("|")), set(hints["f.h5"]))
                server, created = self.served([*program, f"{PREFIX}/f"])
                self.assertEqual(sorted(hint[1:] for hint in created), [("2", "true", "0"), ("2", "true", "16")])
                self.assertEqual(self.contents(server, "f"), "a" * 8 + "b" * 8)

    def test_hdf5_in_python(self):
        self.needs("mpirun.openmpi")
        check = "import h5py, mpi4py; assert h5py.get_config().mpi"
        env = service.clean_environment() | ENVIRONMENT
        if subprocess.run([SYSTEM_PYTHON, "-c", check], capture_output=True, env=env, timeout=60).returncode:
            self.skipTest(f"{SYSTEM_PYTHON} has no h5py with MPI: Debian's python3-h5py-mpi")
        program = [*STARTS["ompio"], SYSTEM_PYTHON, PROGRAMS / "hints.py"]
        hints = self.said([*program, self.local / "f"])
        # The last word, when the file is created, is MPI's.
        self.assertLessEqual(set(SHARED.format(0).split("|")), set(hints["f.h5"]))
        self.assertEqual([hints[f"f.{rank}.h5"] for rank in range(2)], [[OWN.format(rank)] for rank in range(2)])
        server, created = self.served([*program, f"{PREFIX}/f"])
        self.assertEqual(len(created), 3, created)
        self.assertEqual(sum(hint[2] == "true" for hint in created), 1, created)

    def test_each_caller_reaches_the_library_that_it_is_linked_with(self):
        self.needs("gcc")

        def gcc(*arguments):
            command = ["gcc", "-Wall", "-I.", "-L.", "-Wl,-rpath,.", "-Wl,--no-as-needed", PROGRAMS / "versioned.c"]
            subprocess.run([*command, *arguments], cwd=self.local, check=True, timeout=60)

        for name, version in [("first", "A"), ("second", "B")]:
            (self.local / version).write_text(f"{version} {{ global: H5Fcreate; local: *; }};\n")
            options = ["-shared", "-fPIC", f"-Wl,--version-script={version}", f"-DNAME={version}"]
            gcc(*options, "-o", f"libhdf5{version}.so", f"-Wl,-soname,libhdf5{version}.so")
            gcc("-shared", "-fPIC", f"-DCALLER={name}", "-o", f"lib{name}.so", f"-lhdf5{version}")
        gcc("-lfirst", "-lsecond", "-o", "program")
        listener = self.compile("hint_listener.c", "gcc")
        for preload in ["", self.hints_library(), f"{self.hints_library()}:{listener}"]:
            done = subprocess.run(
                ["./program"], env={"LD_PRELOAD": str(preload)}, cwd=self.local, capture_output=True, text=True, timeout=60
            )
            self.assertEqual(done.stdout, "AB\n", done.stderr)
        self.assertEqual(done.stderr, f"file {OWN.format(0).replace('of 2', 'of 1')}\nfile {GONE}\n" * 2)

    def test_without_mpi_a_program_does_what_it_does(self):
        preload = {"LD_PRELOAD": str(self.hints_library())}
        done = subprocess.run(["echo", "fine"], env=preload, capture_output=True, text=True, timeout=60)
        self.assertEqual((done.stdout, done.stderr), ("fine\n", ""))
