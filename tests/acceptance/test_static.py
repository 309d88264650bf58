"""Static programs in C and Fortran that were linked with the client."""

import subprocess
from pathlib import Path

import service
from service import DESCRIBE, SharedServerCase, clean_environment

PROGRAMS = Path(__file__).resolve().parent / "programs"
# Programs that the preload library is tested with; linked, they must do the same.
CASES = Path(__file__).resolve().parents[2] / "crates/preload/tests/cases"


class Static(SharedServerCase):
    def setUp(self):
        super().setUp()
        self.programs = self.local / "programs"
        self.files = self.local / "files"
        for made in [self.programs, self.files]:
            made.mkdir()

    def link(self, source, *options):
        """A static program with the client in it, made from `source`."""
        compiler = "gfortran" if source.suffix == ".f90" else "gcc"
        self.needs(compiler)
        probe = self.programs / f"probe{source.suffix}"
        probe.write_text("end\n" if source.suffix == ".f90" else "int main(void) { return 0; }\n")
        if subprocess.run([compiler, "-static", probe, "-o", self.programs / "probe"], capture_output=True, timeout=60).returncode:
            self.skipTest(f"{compiler} cannot link static programs here")
        flags = subprocess.run([service.isonomia(), "link-flags"], check=True, capture_output=True, text=True, timeout=60)
        program = self.programs / source.stem
        command = [compiler, "-static", "-w", *options, source, "-o", program, *flags.stdout.split()]
        linked = subprocess.run(command, capture_output=True, text=True, timeout=service.PROGRAM_S)
        self.assertEqual(linked.returncode, 0, linked.stderr)
        return program

    def start(self, directory, program, *arguments, preload=True, **environment):
        """Runs a program from a directory: static ones, and by the library the dynamic ones that they start."""
        enter = self.programs / "enter"
        if not enter.exists():
            self.link(PROGRAMS / "enter.c")
        env = clean_environment() | {"ISONOMIA_SERVER": self.shared.address} | environment
        if preload:
            env["LD_PRELOAD"] = str(Path(service.isonomia()).parent / "libisonomia_preload.so")
        command = [enter, directory, program, *arguments]
        done = subprocess.run(
            command, env=env, capture_output=True, text=True, timeout=service.PROGRAM_S, stdin=subprocess.DEVNULL
        )
        return done.returncode, *(text.replace(str(directory), "HERE") for text in [done.stdout, done.stderr])

    def same(self, program, *arguments, prepare="true", trees=True):
        """Runs a program here and there, after a shell's preparations; compares what it says and the trees left.

        `trees=False` is for what threads or processes write in any order.
        """
        outcomes = []
        for directory in [str(self.files), self.directory]:
            prepared = self.start(directory, "bash", "-c", prepare)
            self.assertEqual(prepared[0], 0, prepared)
            outcomes.append(self.start(directory, program, *arguments))
        local, served = outcomes
        self.assertEqual(local, served)
        self.assertEqual(served[0], 0, served)
        if trees:
            left = [self.start(directory, "bash", "-c", DESCRIBE) for directory in [str(self.files), self.directory]]
            self.assertEqual(*left)
        return served[1]

    def check(self, source, content):
        program = self.link(source)
        for path in [f"{self.directory}/f", str(self.files / "f")]:
            env = clean_environment() | {"ISONOMIA_SERVER": self.shared.address}
            done = subprocess.run([program, path], env=env, capture_output=True, text=True, timeout=60)
            self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
            self.assertEqual(done.stdout.split()[0], str(len(content)))
        self.assertEqual(self.shared.run("cat", f"{self.directory}/f").stdout, content)
        self.assertEqual((self.files / "f").read_text(), content)

    def test_c(self):
        self.check(PROGRAMS / "static.c", "hello, world 2\n")

    def test_fortran(self):
        self.check(PROGRAMS / "static.f90", "from Fortran 42\n")

    def test_records_of_fortran(self):
        self.assertEqual(self.same(self.link(PROGRAMS / "records.f90")), "good\n")

    def test_threads_on_one_file(self):
        self.assertEqual(self.same(self.link(PROGRAMS / "threads.c", "-pthread"), trees=False), "good\n")

    def test_allocations_by_an_allocator_of_its_own_too(self):
        self.same(self.link(CASES / "allocations.c", "-pthread"), trees=False)
        self.assertEqual(self.same(self.link(CASES / "stacks.c", "-pthread"), prepare="rm ./*", trees=False), "done\n")
        if Path("/usr/lib/x86_64-linux-gnu/libjemalloc.a").exists():
            jemalloc = self.link(CASES / "allocations.c", "-pthread", "-Wl,--push-state,--whole-archive", "-ljemalloc", "-Wl,--pop-state", "-lstdc++", "-lm")
            self.same(jemalloc, prepare="rm -r ./*", trees=False)

    def test_forks_and_exec_of_itself(self):
        self.assertEqual(self.same(self.link(PROGRAMS / "forks.c")), "good\n")

    def test_streams(self):
        self.same(self.link(PROGRAMS / "stdio.c"))
        self.same(self.link(PROGRAMS / "reopen.c"))

    def test_trees_globs_and_streams_of_directories(self):
        tree = """
            mkdir -p tree/d/e/f tree/skipped/below tree/listed/b/c tree/names/n tree/empty
            touch tree/listed/a tree/listed/b/c/d tree/names/one tree/names/two tree/skipped/below/never
            echo x > tree/d/e/file; mkfifo tree/fifo; ln -s d/e tree/followed; ln -s nowhere tree/dangling; ln -s .. tree/d/e/cycle
        """
        said = self.same(self.link(CASES / "fts.c"), "tree", "tree/d/", "missing", prepare=tree)
        self.assertGreater(said.count("read "), 50)
        self.same(self.link(CASES / "program.c", "-pthread"), trees=False)

    def test_children_of_every_making(self):
        self.same(self.link(CASES / "children.c"))

    def test_becoming_and_starting_other_programs(self):
        made = r"""
            set -e
            echo '#include <stdio.h>' > hello.c
            echo 'int main(int n, char **a) { return printf("program %s %s\n", a[0], n > 1 ? a[1] : "") < 0; }' >> hello.c
            cc -o program hello.c; mkdir bin; cp program bin/program
            printf '#!/bin/sh -e\necho "script ${0##*/} $*"\n' > script
            printf '#!%s/script with arguments\n' "$PWD" > nested
            echo 'echo "plain ${0##*/} $1"' > plain; echo input > input; chmod +x script plain nested
        """
        self.assertIn(" 0 failed\n", self.same(self.link(CASES / "exec.c"), prepare=made, trees=False))

    def test_a_linked_program_that_lies_under_the_prefix(self):
        enter = self.link(PROGRAMS / "enter.c")
        said = self.same("./copy", "sub", "../again", ".", "sh", "-c", "pwd; echo made > file; cat file",
                         prepare=f"mkdir sub; cp {enter} copy; cp {enter} again")
        self.assertEqual(said, "HERE/sub\nmade\n")

    def test_a_program_without_the_client_sees_nothing_of_the_prefix(self):
        self.assertEqual(self.start(self.directory, "sh", "-c", "echo kept > file")[0], 0)
        code, said, complaint = self.start(
            self.directory, "sh", "-c", f"echo runs; cat file; cat {self.directory}/file; echo lost > other", preload=False
        )
        self.assertEqual(said, "runs\n")
        self.assertNotEqual(code, 0)
        self.assertEqual(complaint.count("No such file or directory"), 2, complaint)
        self.assertEqual(self.start(self.directory, "ls")[1], "file\n")
        self.assertFalse(Path(self.directory).exists())

    def test_asynchronous_requests(self):
        self.same(self.link(CASES / "aio.c", "-pthread"), self.programs / "other")
