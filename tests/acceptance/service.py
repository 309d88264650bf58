"""A server of the tests' own, and programs that use it."""

import json
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

PREFIX = "/isonomia"
# No program in these tests needs longer, however busy the machine.
PROGRAM_S = 300
# Longest wait for a server to be ready or to end.
SERVER_S = 30
TEST_S = 300
# What a command says of a server that it was to ask by name; what the servers say of each other is put in other words.
NO_ANSWER = re.compile(r"(^|: )[^\s,]+ does not answer: ", re.MULTILINE)

_bin_dir = None


def configure(bin_dir):
    """Where the program and the preload library are."""
    global _bin_dir
    for name in ["isonomia", "libisonomia_preload.so", "libisonomia_hints.so", "isonomia-detect", "isonomia-bench"]:
        if not (bin_dir / name).exists():
            raise SystemExit(f"{bin_dir / name} is missing: run `make acceptance`")
    _bin_dir = bin_dir


def isonomia():
    return str(_bin_dir / "isonomia")


def bench():
    """The program that measures, and emulates devices."""
    return str(_bin_dir / "isonomia-bench")


def clean_environment():
    """The environment without anything that says who the job is or where the server is."""
    # A `make` inside of `make` says more.
    ours = re.compile(r"ISONOMIA_|SLURM_|PBS_|LSB_|FLUX_|OMPI_|PMIX_|SGE_|LD_PRELOAD|MAKE|MFLAGS")
    kept = {name: value for name, value in os.environ.items() if not ours.match(name)}
    return kept | {"LC_ALL": "C.UTF-8", "TZ": "UTC", "PYTHONDONTWRITEBYTECODE": "1"}


def wait_for(condition, seconds=10):
    """What `condition` gives once that is true; fails the test if it does not become so."""
    deadline = time.monotonic() + seconds
    while not (outcome := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} s: {condition.__doc__ or condition}")
        time.sleep(0.02)
    return outcome


def next_line(process):
    """The next line of a program, of which `communicate` can give the rest.

    `readline` takes more from the pipe than a line, which `communicate` then misses.
    """
    line = b""
    while not line.endswith(b"\n") and (byte := os.read(process.stdout.fileno(), 1)):
        line += byte
    return line.decode()


def if_all_answer(report):
    """What a command told with --json of a whole cluster, if all of its servers have answered, or None.

    They have a second to do so, in which one that lives may have had no processor.
    """
    told = json.loads(report)
    return told if all(server["state"] == "answers" for server in told["servers"]) else None


class Server:
    """`isonomia serve` as a child of this process."""

    def __init__(self, *options, transport="unix", directory=None, env=None, within=()):
        self.options = options
        # What the server is started by, such as `ip netns exec NAME`.
        self.within = within
        self.env = env or {}
        self.transport = transport
        self.temporary = Path(tempfile.mkdtemp(prefix="isonomia-acceptance-"))
        # Programs of other users reach the socket through here.
        self.temporary.chmod(0o755)
        self.directory = Path(directory) if directory else self.temporary / "files"
        self.log_path = self.temporary / "log"
        self.key_file = self.temporary / "key"
        self.process = None

    def start(self):
        listen = ["--listen", f"unix:{self.temporary}/socket"]
        if self.transport == "tcp":
            self.key_file.write_bytes(os.urandom(32))
            self.key_file.chmod(0o600)
            listen += ["--listen", "tcp:127.0.0.1:0", "--key-file", str(self.key_file)]
        command = [*self.within, isonomia(), "serve", "--dir", str(self.directory), *listen, *self.options]
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, env=clean_environment() | self.env
            )
        if not select.select([self.process.stdout], [], [], SERVER_S)[0]:
            self.kill()
            raise AssertionError(f"the server is not ready after {SERVER_S} s:\n{self.log()}")
        line = self.process.stdout.readline()
        if not line:
            self.process.wait(SERVER_S)
            raise AssertionError(f"the server ended with {self.process.returncode}:\n{self.log()}")
        self.ready = json.loads(line)
        wanted = f"{self.transport}:"
        self.address = next(address for address in self.ready["listen"] if address.startswith(wanted))
        return self

    def reach(self):
        """The options that lead a command to this server."""
        key = ["--key-file", str(self.key_file)] if self.transport == "tcp" else []
        return ["--server", self.address, *key]

    def command(self, *program, job=None, timeout_s=20, more=()):
        name = ["--job", job] if job else []
        return [isonomia(), "run", *self.reach(), "--timeout", f"{timeout_s}s", *name, *more, "--", *map(str, program)]

    def run(self, *program, check=True, cwd=None, env=None, input=None, text=True, limit_s=PROGRAM_S, watch=False, **options):
        """Runs a program to its end; with `watch`, no system call of it may name a path under the prefix."""
        command = self.command(*program, **options)
        if watch:
            report = self.temporary / "leaks"
            report.write_text("")
            command = [str(_bin_dir / "isonomia-detect"), "--prefix", PREFIX, "--report", str(report), "--", *command]
        done = subprocess.run(
            command,
            cwd=cwd,
            env=clean_environment() | (env or {}),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=text,
            timeout=limit_s,
            **({"stdin": subprocess.DEVNULL} if input is None else {"input": input}),
        )
        if watch and (leaks := report.read_text()):
            raise AssertionError(f"{program} made system calls that no hook took:\n{leaks}")
        if check and done.returncode:
            raise AssertionError(f"{program} ended with {done.returncode}\n{done.stdout}\n{done.stderr}\n{self.log()}")
        return done

    def start_program(self, *program, stdin=subprocess.DEVNULL, **options):
        """Starts a program; the process is the program itself."""
        return subprocess.Popen(
            self.command(*program, **options),
            env=clean_environment(),
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def operate(self, *arguments, check=True):
        """An operator's command, such as `status`."""
        command = [isonomia(), *arguments, *self.reach()]
        deadline = time.monotonic() + SERVER_S
        while True:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=PROGRAM_S, env=clean_environment(), stdin=subprocess.DEVNULL
            )
            # A server that is named has a second to answer, in which one that lives may have had no processor. Nothing was done.
            is_silent = check and done.returncode and NO_ANSWER.search(done.stderr)
            if not is_silent or self.process.poll() is not None or time.monotonic() > deadline:
                break
        if check and done.returncode:
            raise AssertionError(f"{arguments} ended with {done.returncode}: {done.stderr}\n{self.log()}")
        return done

    def status(self):
        return json.loads(self.operate("status", "--json").stdout)

    def job(self, name):
        """The state of a job, or None."""
        return next((job for job in self.status()["jobs"] if job["job"] == name), None)

    def resident_bytes(self):
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        return 1024 * int(re.search(r"VmRSS:\s+(\d+) kB", text)[1])

    def log(self, lines=30):
        return "\n".join(self.log_path.read_text(errors="replace").splitlines()[-lines:])

    def kill(self):
        """As a crash: nothing is written any more."""
        self._end(signal.SIGKILL)

    def stop(self):
        """As an operator ends it. Gives its exit code."""
        return self._end(signal.SIGTERM)

    def _end(self, how):
        if self.process.poll() is None:
            self.process.send_signal(how)
        try:
            return self.process.wait(SERVER_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(SERVER_S)
            raise AssertionError(f"the server does not end:\n{self.log()}")
        finally:
            self.process.stdout.close()

    def remove(self):
        if self.process and self.process.poll() is None:
            self.kill()
        # What a killed server leaves for the next: the memory of files that programs had mapped.
        if (metadata := self.directory / "metadata").exists():
            place = metadata.stat()
            for left in Path("/dev/shm").glob(f"isonomia-mapped-{place.st_dev:x}-{place.st_ino:x}-*"):
                shutil.rmtree(left, ignore_errors=True)
        shutil.rmtree(self.temporary, ignore_errors=True)


_ports = set()


def free_port():
    """A port of the loopback device that is free at the moment, and was not told before: the kernel may well give one twice."""
    while True:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        if port not in _ports:
            _ports.add(port)
            return port


def why_no_mount():
    """Why nothing can be mounted here, or None."""
    try:
        os.close(os.open("/dev/fuse", os.O_RDWR))
    except OSError as error:
        return f"/dev/fuse cannot be opened: {error}"
    return None


class Mount:
    """A server's files as a directory of this host, for everybody if this is root."""

    def __init__(self, server, *options):
        self.server = server
        self.place = Path(tempfile.mkdtemp(prefix="isonomia-mount-"))
        self.place.chmod(0o755)
        everybody = ["-o", "allow_other"] if os.geteuid() == 0 else []
        self.command = [isonomia(), "mount", "--foreground", *server.reach(), *everybody, *options, str(self.place)]
        self.process = None

    def start(self):
        with open(self.server.log_path, "ab") as log:
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, env=clean_environment()
            )
        ready = select.select([self.process.stdout], [], [], SERVER_S)[0] and self.process.stdout.readline()
        if not ready or json.loads(ready)["dir"] != str(self.place):
            self.remove()
            raise AssertionError(f"no mount after {SERVER_S} s: {ready}\n{self.server.log()}")
        return self

    def remove(self):
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(SERVER_S)
        if self.process:
            self.process.stdout.close()
        subprocess.run(["umount", "--lazy", self.place], capture_output=True, timeout=PROGRAM_S)
        self.place.rmdir()


class Case(unittest.TestCase):
    """A test that is cut off when it hangs."""

    def setUp(self):
        def on_alarm(_signal, _frame):
            raise AssertionError(f"the test takes more than {TEST_S} s")

        signal.signal(signal.SIGALRM, on_alarm)
        signal.alarm(TEST_S)
        self.addCleanup(signal.alarm, 0)

    def server(self, *options, **more):
        """A server of this test's own."""
        server = Server(*options, **more)
        self.addCleanup(server.remove)
        return server.start()

    def program(self, server, *program, **options):
        """Starts a program that is gone at the end of the test."""
        process = server.start_program(*program, **options)

        def end():
            process.kill()
            process.communicate()

        self.addCleanup(end)
        return process

    def becomes(self, tell, wanted):
        """Asks until what is told is what is wanted, and fails with what was told last."""
        deadline = time.monotonic() + SERVER_S
        while (told := tell()) != wanted and time.monotonic() < deadline:
            time.sleep(0.02)
        self.assertEqual(told, wanted)

    def needs(self, *commands):
        """Skips the test where programs are missing."""
        if missing := [command for command in commands if not shutil.which(command)]:
            self.skipTest(f"not installed, and `scripts/setup acceptance` could not: {', '.join(missing)}")


class SharedServerCase(Case):
    """Tests that share one server, each in a directory of its own."""

    TRANSPORT = "unix"
    OPTIONS = ()
    # Where their directories are.
    BELOW = PREFIX

    @classmethod
    def setUpClass(cls):
        cls.shared = Server(*cls.OPTIONS, transport=cls.TRANSPORT)
        cls.addClassCleanup(cls.shared.remove)
        cls.shared.start()

    def setUp(self):
        super().setUp()
        self.directory = f"{self.BELOW}/{self._testMethodName}"
        self.shared.run("mkdir", self.directory)
        self.local = Path(tempfile.mkdtemp(prefix="isonomia-local-"))
        self.addCleanup(shutil.rmtree, self.local, ignore_errors=True)

    @classmethod
    def directory_for_programs(cls):
        """Where the tests put the programs that they compile."""
        directory = tempfile.TemporaryDirectory(prefix="isonomia-programs-")
        cls.addClassCleanup(directory.cleanup)
        return Path(directory.name)

    def run_here(self, *program, **options):
        """Runs a program in the test's directory on the server."""
        # `cd` is the shell's, so that the directory needs no process of its own on the server.
        script = 'cd "$1" && shift && exec "$@"'
        return self.shared.run("bash", "-c", script, "bash", self.directory, *program, **options)

    def bash(self, script, **options):
        return self.run_here("bash", "-c", script, **options)

    def python(self, script, **options):
        return self.run_here("python3", "-c", script, watch=True, **options)


# Everything about a tree that a program can rely on; the size of a directory is the file system's own affair.
DESCRIBE = r"""
find . -mindepth 1 \( -type d -printf '%P d %m\n' -o -printf '%P %y %m %n %s %l\n' \) | LC_ALL=C sort
find . -type f -print0 | LC_ALL=C sort -z | xargs -0r md5sum
"""


class SameAsLocalCase(SharedServerCase):
    """Shell scripts do the same on the server as on a local file system."""

    def same(self, script, trees=True, env=None):
        """Runs `script` in an empty directory here and there; compares output, exit code, and the trees left.

        `trees=False` is for what names its files by the time or by chance.
        """
        script = f"umask 022\n{script}"
        local = self.run_locally(script, env)
        served = self.bash(script, check=False, env=env, watch=True)
        self.assertEqual(
            (local.stdout, local.stderr, local.returncode),
            (served.stdout, served.stderr, served.returncode),
            f"local and served differ for:{script}\n{self.shared.log(5)}",
        )
        if trees:
            self.assertEqual(self.run_locally(DESCRIBE).stdout, self.bash(DESCRIBE).stdout, f"trees after:{script}")
        return served

    def run_locally(self, script, env=None):
        return subprocess.run(
            ["bash", "-c", script],
            cwd=self.local,
            env=clean_environment() | (env or {}),
            capture_output=True,
            text=True,
            timeout=PROGRAM_S,
            stdin=subprocess.DEVNULL,
        )


class MountedCase(SameAsLocalCase):
    """The same through a mount: what runs under the preload library otherwise runs as it is."""

    MOUNT_OPTIONS = ()

    @classmethod
    def setUpClass(cls):
        if reason := why_no_mount():
            raise unittest.SkipTest(reason)
        super().setUpClass()
        cls.mounted = Mount(cls.shared, *cls.MOUNT_OPTIONS)
        cls.addClassCleanup(cls.mounted.remove)
        cls.mounted.start()

    def setUp(self):
        super().setUp()
        self.directory = str(self.mounted.place / self._testMethodName)

    def run_here(self, *program, check=True, env=None, input=None, text=True, limit_s=PROGRAM_S, watch=False):
        # What `watch` looks for is a call that the library missed; here there is none.
        done = subprocess.run(
            list(map(str, program)),
            cwd=self.directory,
            env=clean_environment() | (env or {}),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=text,
            timeout=limit_s,
            **({"stdin": subprocess.DEVNULL} if input is None else {"input": input}),
        )
        if check and done.returncode:
            raise AssertionError(f"{program} ended with {done.returncode}\n{done.stdout}\n{done.stderr}\n{self.shared.log()}")
        return done
