"""Exclusive I/O phases of programs: declared in C, Fortran and Python, by MPI-IO, and by programs that say nothing."""

import signal
import subprocess
import tempfile
from pathlib import Path

from service import PREFIX, PROGRAM_S, Case, clean_environment, wait_for
from test_hints import ENVIRONMENT, PROGRAMS, STARTS

ROOT = Path(__file__).resolve().parents[2]
INCLUDE = ROOT / "include"
# Nobody waits for a gap or a lease: a phase that is over is one that a program ended.
EXCLUSIVE = "exclusive{lease=1h,gap=1h}"
# The module alone: the package around it needs its native part, which is not built here.
PYTHON = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("phases", sys.argv[1])
phases = importlib.util.module_from_spec(spec)
spec.loader.exec_module(phases)
try:
    phases.begin_phase(-1)
    sys.exit("a negative size is taken")
except ValueError as error:
    assert "allowed: 0 or more" in str(error), error
with phases.io_phase(size=4096, remaining_s=2.5), open(sys.argv[2], "x") as file:
    file.write("from Python")
phases.end_phase()
"""


class Phases(Case):
    def setUp(self):
        super().setUp()
        directory = tempfile.TemporaryDirectory(prefix="isonomia-local-")
        self.addCleanup(directory.cleanup)
        self.local = Path(directory.name)

    def compile(self, compiler, *sources):
        self.needs(compiler)
        program = self.local / sources[-1].name.replace(".", "-")
        command = [compiler, "-Wall", "-I", INCLUDE, *sources, "-o", program]
        done = subprocess.run(command, cwd=self.local, capture_output=True, text=True, timeout=PROGRAM_S)
        if done.returncode and compiler.startswith("mpi"):
            self.skipTest(f"{compiler} cannot compile: {done.stderr}")
        self.assertEqual((0, ""), (done.returncode, done.stderr))
        return program

    def node(self, server):
        return server.status()["exclusive"]

    def test_programs_say_where_their_phases_begin_and_end(self):
        programs = {
            "C": [self.compile("gcc", PROGRAMS / "phases.c")],
            "Fortran": [self.compile("gfortran", INCLUDE / "isonomia.f90", PROGRAMS / "phases.f90")],
            "Python": ["python3", "-c", PYTHON, ROOT / "python/isonomia/phases.py"],
        }
        server = self.server("--policy", EXCLUSIVE, "--trust-clients")
        for language, program in programs.items():
            with self.subTest(language):
                program = [str(word) for word in program]
                before = self.node(server)["ended_by_program_total"]
                # A phase of another job would wait for an hour if this one's were not over.
                server.run(*program, f"{PREFIX}/{language}", job=language)
                self.assertEqual(before + 1, self.node(server)["ended_by_program_total"])
                self.assertEqual(1, server.job(language)["exclusive"]["phases_total"])
                # Without a client nobody is told, and the program does the same.
                subprocess.run([*program, self.local / language], check=True, env=clean_environment(), timeout=PROGRAM_S)
                self.assertEqual(f"from {language}", (self.local / language).read_text().strip())
        self.assertEqual(0, self.node(server)["ended_by_lease_total"])
        # A process that is gone has left its phases, those that were found by its requests, too.
        text = server.run("cat", *(f"{PREFIX}/{language}" for language in programs), job="reader").stdout
        self.assertEqual("".join(f"from {language}" for language in programs), text.replace("\n", ""))
        self.assertIn("exclusive phases: ", server.operate("status").stdout)

    def test_a_program_that_is_killed_in_its_phase_blocks_nobody(self):
        program = self.compile("gcc", PROGRAMS / "phases.c")
        server = self.server("--policy", EXCLUSIVE, "--trust-clients")
        server.run("sh", "-c", f"echo text > {PREFIX}/there", job="before")
        hangs = self.program(server, program, f"{PREFIX}/hangs", "hang", job="hangs")
        self.assertEqual("in a phase\n", hangs.stdout.readline(), "whoever had the targets before is gone")
        waits = self.program(server, "cat", f"{PREFIX}/there", job="waits")
        wait_for(lambda: (server.job("waits") or {}).get("exclusive", {}).get("state") == "waiting", PROGRAM_S)
        self.assertTrue(self.node(server)["holder"].endswith("/hangs"))
        # Those who do no I/O on files are not held up.
        self.assertIn("there", server.run("ls", PREFIX, job="lists").stdout)
        hangs.send_signal(signal.SIGKILL)
        out, err = waits.communicate(timeout=PROGRAM_S)
        self.assertEqual(("text\n", "", 0), (out, err, waits.returncode))

    def test_a_collective_call_of_mpi_is_a_phase(self):
        for mpi, start in STARTS.items():
            with self.subTest(mpi):
                program = self.compile("mpicc.mpich" if mpi == "mpich" else "mpicc.openmpi", PROGRAMS / "collective.c")
                server = self.server("--policy", EXCLUSIVE, "--trust-clients")
                command = [*start, program, f"{PREFIX}/f"]
                server.run(*command, more=["--hints"], env=ENVIRONMENT, job="ranks")
                self.assertEqual("aaaabbbb", server.run("cat", f"{PREFIX}/f", job="ranks").stdout)
                phases = self.node(server)["ended_by_program_total"]
                # The write and the read; each ends when the last rank's call does.
                self.assertGreaterEqual(phases, 1)
                # On files elsewhere it is none.
                server.run(*start, program, self.local / "f", more=["--hints"], env=ENVIRONMENT, job="ranks")
                self.assertEqual(phases, self.node(server)["ended_by_program_total"])
