"""Programs with threads, forks, and C's own streams, compiled here."""

import subprocess
import unittest
from pathlib import Path

from service import SharedServerCase, wait_for

PROGRAMS = Path(__file__).parent / "programs"
NAMES = ["forks", "reopen", "stdio", "threads"]


class Processes(SharedServerCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.programs = cls.directory_for_programs()
        for source in (PROGRAMS / f"{name}.c" for name in NAMES):
            command = ["gcc", "-O1", "-Wall", "-Wextra", "-Werror", "-D_GNU_SOURCE", "-pthread", str(source)]
            subprocess.run([*command, "-o", str(cls.programs / source.stem)], check=True, timeout=60)

    def test_threads_on_one_file(self):
        self.assertEqual("good\n", self.run_here(self.programs / "threads").stdout)
        self.assertEqual("80\n", self.bash("ls t*-* | wc -l").stdout)

    def test_forks_share_offsets_and_files(self):
        self.assertEqual("good\n", self.run_here(self.programs / "forks").stdout)

    def test_streams_of_c(self):
        self.assertEqual("", self.run_here(self.programs / "stdio").stdout)
        self.assertEqual("good\n", self.bash("cat log").stdout)

    def test_an_open_file_without_a_name_survives_exec(self):
        script = "exec 5<> f; rm f; echo kept >&5; exec python3 -c 'import os; print(os.pread(5, 9, 0))'"
        self.assertEqual("b'kept\\n'\n", self.bash(script).stdout)

    def test_reopening_a_stream_in_another_direction(self):
        self.run_here(self.programs / "reopen")

    def test_a_library_that_reads_its_configuration_at_the_start(self):
        library, program = self.programs / "libearly.so", self.programs / "early"
        source = ["gcc", "-Wall", "-Wextra", "-Werror", PROGRAMS / "early.c"]
        subprocess.run([*source, "-shared", "-fPIC", "-o", library], check=True, timeout=60)
        subprocess.run([*source, "-DPROGRAM", "-o", program, library], check=True, timeout=60)
        self.assertEqual("fine\nfine\n", self.bash(f"echo fine > early.conf; {program}; {program} > written; cat written").stdout)

    def test_many_processes_at_once(self):
        self.bash("for i in $(seq 40); do (seq $i > f$i; cat f$i > g$i) & done; wait; cat g* | md5sum")
        self.assertEqual("80\n", self.bash("ls | wc -l").stdout)

    def test_a_job_ends_with_its_last_process(self):
        def has_no_clients():
            """the job is known, and has no clients"""
            job = self.shared.job("short")
            return job and job["clients"] == 0

        self.run_here("true", job="short")
        self.run_here("touch", "x", job="short")
        wait_for(has_no_clients)


class ProcessesOverTcp(Processes):
    """The same with a key over TCP."""

    TRANSPORT = "tcp"
