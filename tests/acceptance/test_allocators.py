"""Programs with an allocator of their own, loaded before and behind the client or linked, and with the compiler's sanitizers."""

import subprocess
from pathlib import Path

import service
from service import PREFIX, SharedServerCase

ALLOCATIONS = Path(__file__).resolve().parents[2] / "crates/preload/tests/cases/allocations.c"
ALLOCATORS = ["libjemalloc.so.2", "libmimalloc.so.2", "libtcmalloc.so.4", "libtcmalloc_minimal.so.4", "libhoard.so"]
# Longer than a program takes here by far; one whose allocator waits for itself waits for ever.
LIMIT_S = 60
PYTHON = f"""
import os, threading
def work(name):
    for round in range(20):
        with open(name, 'wb') as f: f.write(os.urandom(1 << round % 18) + b'end')
        assert open(name, 'rb').read().endswith(b'end')
threads = [threading.Thread(target=work, args=[f'p{{i}}']) for i in range(4)]
[t.start() for t in threads]; [t.join() for t in threads]
pid = os.fork()
if pid == 0: work('child'); os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
print(len(os.listdir('.')), os.getcwd().startswith('{PREFIX}'))
"""


class Allocators(SharedServerCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.programs = cls.directory_for_programs()
        cls.program = cls.compile("allocations")
        cls.client = str(service._bin_dir / "libisonomia_preload.so")
        found = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=True).stdout
        cls.allocators = [name for name in ALLOCATORS if f"{name} " in found]

    @classmethod
    def compile(cls, name, *options):
        """The path of a program; `None` where the compiler cannot make it."""
        program = cls.programs / name
        command = ["gcc", "-w", "-O1", "-g", "-pthread", ALLOCATIONS, "-o", program, *options]
        return program if subprocess.run(command, capture_output=True, timeout=60).returncode == 0 else None

    def expect_done(self, *program, **options):
        done = self.run_here(*program, limit_s=LIMIT_S, **options)
        self.assertTrue(done.stdout.endswith("\ndone\n"), done.stdout + done.stderr)

    def test_before_and_behind_the_client(self):
        if not self.allocators:
            self.skipTest("no allocator is installed, and `scripts/setup acceptance` could not")
        for name in self.allocators:
            for order in [f"{self.client}:{name}", f"{name}:{self.client}"]:
                with self.subTest(order):
                    preload = ["env", f"LD_PRELOAD={order}", "PYTHONMALLOC=malloc"]
                    directory = f"{PREFIX}/{self._testMethodName}/{name}.{order.startswith(name)}"
                    self.shared.run("mkdir", directory)
                    inside = ["env", "-C", directory]
                    # tcmalloc has an `mmap` of its own, which must stand behind the client's.
                    is_in_the_way = order.startswith("libtcmalloc")
                    self.expect_done(*preload, *inside, self.program, *(["unmapped"] if is_in_the_way else []))
                    done = self.run_here(*preload, *inside, "python3", "-c", PYTHON, limit_s=LIMIT_S)
                    self.assertTrue(done.stdout.endswith(" True\n"), done.stdout)

    def test_linked_with_one(self):
        self.needs("redis-cli")
        self.assertRegex(self.run_here("redis-cli", "--version", limit_s=LIMIT_S).stdout, "^redis-cli ")
        for name in self.allocators:
            with self.subTest(name):
                if program := self.compile(name, f"-l:{name}"):
                    self.expect_done(program)
                    self.bash("rm *")

    def test_rustc_with_jemalloc(self):
        self.needs("rustc")
        self.assertRegex(self.run_here("rustc", "--version", limit_s=LIMIT_S).stdout, "^rustc ")

    def test_address_and_undefined_behaviour_sanitizers(self):
        program = self.compile("asan", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
        if not program:
            self.skipTest("gcc has no address sanitizer here")
        # Its allocator may wait for ever in the child of a program of several threads, also without us.
        program = [program, "alone"]
        # The sanitizer asks to be the first library, and would look for leaks under the eyes of nobody else.
        self.expect_done(*program, env={"ASAN_OPTIONS": "verify_asan_link_order=0"})
        self.bash("rm *")
        runtime = subprocess.run(["gcc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True).stdout.strip()
        self.expect_done("env", f"LD_PRELOAD={Path(runtime).resolve()}:{self.client}", *program)

    def test_thread_sanitizer(self):
        program = self.compile("tsan", "-fsanitize=thread")
        if not program or subprocess.run([program], cwd=self.local, capture_output=True, timeout=LIMIT_S).returncode:
            self.skipTest("gcc's thread sanitizer does not run here")
        # It cannot see how uninstrumented libraries keep their threads apart.
        self.expect_done(program, env={"TSAN_OPTIONS": "ignore_noninstrumented_modules=1"})
