"""Who wrote before the host of a server failed is told at the next fsync: the host's kernel gives another boot id then."""

import os
import subprocess
import uuid

from service import PREFIX, PROGRAM_S, Case, Mount, clean_environment, next_line, why_no_mount

# A server that is started by this sees itself on a host with the given boot id.
AT_BOOT = 'mount --bind "$0" /proc/sys/kernel/random/boot_id && exec "$@"'

# Says at each step which of its syncs were told of a loss, and does the next at the next line.
PROGRAM = """
import ctypes, errno, os, subprocess, sys
directory, is_mount = sys.argv[1], sys.argv[2] == "mount"
libc = ctypes.CDLL(None, use_errno=True)
def told(call, *arguments):
    try:
        call(*arguments)
        return 0
    except OSError as error:
        assert error.errno == errno.EIO, error
        return 1
def syncfs(fd):
    if libc.syncfs(fd): raise OSError(ctypes.get_errno(), "syncfs")
def open_(name, flags=0):
    return os.open(f"{directory}/{name}", os.O_RDWR | os.O_CREAT | flags)
names = ["fsync", "fdatasync", "exec", "fork", "idle"] + ([] if is_mount else ["syncfs"])
fds = {name: open_(name) for name in names}
for fd in fds.values(): os.fsync(fd)
synchronous = open_("synchronous", os.O_SYNC)
def write():
    for name in names:
        if name not in ("idle", "fork"): os.pwrite(fds[name], b"x" * 1000, 0)
    # What a child writes its parent may sync.
    if not (child := os.fork()):
        os.pwrite(fds["fork"], b"x", 0)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    os.pwrite(synchronous, b"x", 0)
def sync():
    said = []
    for name in names:
        if name == "exec":
            os.set_inheritable(fds[name], True)
            script = "import os, sys; os.fdatasync(int(sys.argv[1]))"
            done = subprocess.run([sys.executable, "-c", script, str(fds[name])], pass_fds=[fds[name]],
                                  stderr=subprocess.PIPE, text=True)
            assert done.returncode == 0 or "Errno 5" in done.stderr, done.stderr
            is_told = int(done.returncode != 0)
        else:
            call = {"fsync": os.fsync, "syncfs": syncfs}.get(name, os.fdatasync)
            is_told = told(call, fds[name])
        if is_told: said.append(name)
    if told(os.pwrite, synchronous, b"y", 0): said.append("synchronous")
    return " ".join(said) or "nothing"
write()
print("written", flush=True)
for line in sys.stdin:
    first, second = sync(), sync()
    write()
    third = sync()
    write()
    print(first, second, third, sep=", ", flush=True)
"""


class PowerCuts(Case):
    def setUp(self):
        super().setUp()
        if os.geteuid() != 0:
            self.skipTest("needs root to show a server another boot id")
        self.needs("unshare")

    def at_boot(self, server):
        """The server's next start is on a host that was started anew."""
        boot = server.temporary / "boot_id"
        boot.write_text(f"{uuid.uuid4()}\n")
        server.within = ["unshare", "--mount", "--propagation", "private", "sh", "-c", AT_BOOT, str(boot)]

    def through(self, server, program, names):
        def answer():
            program.stdin.write("\n")
            program.stdin.flush()
            line = program.stdout.readline().strip()
            return line or program.stderr.read()

        self.assertEqual("written\n", program.stdout.readline())
        server.kill()
        server.start()
        self.assertEqual("nothing, nothing, nothing", answer())
        self.assertEqual(0, server.stop())
        self.at_boot(server)
        server.start()
        # It was stopped in order, so all was on stable storage when the host was.
        self.assertEqual("nothing, nothing, nothing", answer())
        server.kill()
        self.at_boot(server)
        server.start()
        self.assertEqual(f"{names}, nothing, nothing", answer())

    def start(self, command):
        program = subprocess.Popen(
            command, env=clean_environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.addCleanup(program.communicate)
        self.addCleanup(program.kill)
        return program

    def mounted(self):
        """A server, and a mount of it."""
        if reason := why_no_mount():
            self.skipTest(reason)
        server = self.server()
        mount = Mount(server)
        self.addCleanup(mount.remove)
        return server, mount.start()

    def test_preloaded_programs_are_told(self):
        server = self.server()
        program = self.start(server.command("python3", "-c", PROGRAM, PREFIX, "preloaded"))
        self.through(server, program, "fsync fdatasync exec fork syncfs")

    def test_programs_of_a_mount_are_told(self):
        server, mount = self.mounted()
        program = self.start(["python3", "-c", PROGRAM, str(mount.place), "mount"])
        self.through(server, program, "fsync fdatasync exec fork")

    def test_a_file_that_was_mapped_through_a_mount(self):
        server, mount = self.mounted()
        script = (
            "import mmap, os, sys\n"
            "one, other = (os.open(sys.argv[1], os.O_RDWR | os.O_CREAT) for _ in range(2))\n"
            "os.ftruncate(one, 8192); os.fsync(one)\n"
            "m = mmap.mmap(one, 8192); m[:3] = b'one'\n"
            # The kernel writes it back through whichever descriptor it likes, and syncs nothing.
            "import ctypes; assert not ctypes.CDLL(None).sync_file_range(one, ctypes.c_int64(0), ctypes.c_int64(0), 7)\n"
            "print('written', flush=True)\n"
            "for line in sys.stdin:\n"
            "    said = []\n"
            "    for _ in range(2):\n"
            "        try: m.flush(); said.append('nothing')\n"
            "        except OSError as error: said.append(str(error.errno))\n"
            "    print(*said, flush=True)\n"
        )
        program = self.start(["python3", "-c", script, str(mount.place / "f")])
        self.assertEqual("written\n", next_line(program))
        server.kill()
        self.at_boot(server)
        server.start()
        out, err = program.communicate("\n", timeout=PROGRAM_S)
        self.assertEqual("5 nothing\n", out, err)
