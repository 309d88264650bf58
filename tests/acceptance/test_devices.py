"""Targets on a device that takes its time, or hangs: an emulated disk with ext4 on it."""

import os
import select
import signal
import subprocess
import tempfile
import textwrap
import time
from pathlib import Path

from service import PREFIX, Case, bench, clean_environment, next_line, wait_for

READERS = 12
FILES = 12
FILE_BYTES = 4 << 20

# Which of the files lies on which target is told by where their objects are.
WRITE_FILES = f"""
import os, sys
for i in range({FILES}):
    with open(f"{{sys.argv[1]}}/file-{{i}}", "wb") as file:
        file.write(bytes([i]) * {FILE_BYTES})
        os.fsync(file.fileno())
"""

READ_FILE = f"""
import sys
which = int(sys.argv[2])
print("reading", flush=True)
with open(f"{{sys.argv[1]}}/file-{{which}}", "rb") as file:
    data = file.read()
assert data == bytes([which]) * {FILE_BYTES}, (len(data), data[:1])
print("read", flush=True)
"""

READ_AGAIN_AND_AGAIN = f"""
import os, sys, time
which, begin, stop = int(sys.argv[2]), sys.argv[3], sys.argv[4]
print("there", flush=True)
while not os.path.exists(begin):
    time.sleep(0.01)
while not os.path.exists(stop):
    with open(f"{{sys.argv[1]}}/file-{{which}}", "rb") as file:
        data = file.read()
    assert data == bytes([which]) * {FILE_BYTES}, (len(data), data[:1])
print("read", flush=True)
"""

WORK_ELSEWHERE = """
import os, sys
which = int(sys.argv[2])
for repeat in range(200):
    fd = os.open(f"{sys.argv[1]}/file-{which}", os.O_RDWR)
    assert os.pwrite(fd, b"x" * 4096, 4096 * repeat) == 4096
    assert os.pread(fd, 4096, 4096 * repeat) == b"x" * 4096
    os.fsync(fd)
    os.close(fd)
    os.mkdir(f"{sys.argv[1]}/directory-{repeat}")
    os.rmdir(f"{sys.argv[1]}/directory-{repeat}")
"""

WRITE_SLOWLY = f"""
import os, sys
print("writing", flush=True)
fd = os.open(f"{{sys.argv[1]}}/file-{{sys.argv[2]}}", os.O_RDWR)
for repeat in range(64):
    assert os.pwrite(fd, b"y" * 65536, 65536 * (repeat % 16)) == 65536
os.fsync(fd)
os.ftruncate(fd, 65536)
os.fsync(fd)
assert os.pread(fd, 1 << 20, 0) == b"y" * 65536
print("written", flush=True)
"""


# What is known of a file is in memory as long as it is open.
WORK_WITH_OPEN_FILES = f"""
import os, sys, time
below, begin, may_write = sys.argv[1], sys.argv[2], sys.argv[3] == "True"
files = [os.open(f"{{below}}/open-{{i}}", os.O_RDWR | os.O_CREAT) for i in range(4)]
for fd in files:
    assert os.pwrite(fd, b"z" * {FILE_BYTES}, 0) == {FILE_BYTES}
    assert len(os.pread(fd, {FILE_BYTES}, 0)) == {FILE_BYTES}
print("open", flush=True)
while not os.path.exists(begin):
    time.sleep(0.01)
for repeat in range(200):
    for fd in files:
        assert os.pread(fd, 4096, 4096 * repeat) == b"z" * 4096
        if may_write:
            assert os.pwrite(fd, b"z" * 4096, 4096 * repeat) == 4096
print("done", flush=True)
"""


# A directory for which there is a rule, and in which nobody works.
BELOW_RULE = "/limited"
# What is synced waits for the device, and nobody else for that.
CHANGE_NAMES = """
import os, sys, threading
directory = os.open(sys.argv[1], os.O_RDONLY)
print("changing", flush=True)
sys.stdin.readline()
sync = threading.Thread(target=os.fsync, args=[directory])
sync.start()
for repeat in range(200):
    os.mkdir(f"{sys.argv[1]}/directory-{repeat % 10}")
    os.rmdir(f"{sys.argv[1]}/directory-{repeat % 10}")
print("changed" if sync.is_alive() else "synced", flush=True)
"""


class Device:
    """`isonomia-bench device` on a directory of its own."""

    def __init__(self, case, *options):
        self.place = Path(tempfile.mkdtemp(prefix="isonomia-device-"))
        case.addCleanup(self.place.rmdir)
        self.process = subprocess.Popen(
            [bench(), "device", str(self.place), *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=clean_environment(),
            text=True,
        )
        case.addCleanup(self.remove)
        ready = select.select([self.process.stdout], [], [], 60)[0] and self.process.stdout.readline()
        if ready != "ready\n":
            self.process.kill()
            case.skipTest(f"no device can be emulated here: {self.process.stderr.read().strip()}")

    def forget(self):
        """Nothing of its files stays in memory, and everything else does: other tests look at what is in there."""
        subprocess.run(["sync", "--file-system", self.place], check=True, timeout=60)
        for path in self.place.rglob("*"):
            if path.is_file():
                fd = os.open(path, os.O_RDONLY)
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
                os.close(fd)

    def hang(self):
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self):
        self.process.send_signal(signal.SIGCONT)

    def remove(self):
        if self.process.poll() is None:
            self.go_on()
        self.process.communicate(timeout=60)


class DeviceCase(Case):
    def setUp(self):
        super().setUp()
        if os.geteuid() != 0:
            self.skipTest("a loop device takes root")
        if not os.access("/dev/fuse", os.R_OK | os.W_OK):
            self.skipTest("/dev/fuse cannot be opened")
        self.needs("losetup", "mkfs.ext4")

    def start(self, device, more=""):
        """A server with target 0 on the device, and target 1 in memory."""
        elsewhere = tempfile.TemporaryDirectory(prefix="isonomia-target-", dir="/dev/shm")
        self.addCleanup(elsewhere.cleanup)
        config = Path(elsewhere.name) / "config.toml"
        config.write_text(
            f'[[targets]]\ndir = "{device.place}/target"\n{more}\n[[targets]]\ndir = "{elsewhere.name}/target"\n'
        )
        server = self.server("--config", str(config))
        self.addCleanup(server.kill)
        return server

    def python(self, server, script, *arguments):
        return self.program(server, "python3", "-c", textwrap.dedent(script), PREFIX, *map(str, arguments), timeout_s=100)


class Devices(DeviceCase):
    def write_files(self, server, device):
        """Files that lie on the device, and files that do not."""
        server.run("python3", "-c", textwrap.dedent(WRITE_FILES), PREFIX)
        inodes = [int(server.run("stat", "-c", "%i", f"{PREFIX}/file-{i}").stdout) for i in range(FILES)]
        objects = [path.name for path in device.place.glob("target/objects/*/*") if path.suffix != ".sum"]
        numbers = {int(name.split(".")[0], 16) for name in objects}
        slow = [i for i in range(FILES) if inodes[i] in numbers]
        fast = [i for i in range(FILES) if inodes[i] not in numbers]
        self.assertEqual(FILES // 2, len(slow), (inodes, objects))
        return slow, fast

    def test_the_slowest_device_is_made_and_ended_at_once(self):
        place = tempfile.mkdtemp(prefix="isonomia-device-")
        self.addCleanup(os.rmdir, place)
        command = [bench(), "device", place, "--latency", "1h", "--size", "64MiB"]
        device = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=clean_environment(), text=True)
        self.addCleanup(device.communicate)
        is_told = select.select([device.stdout], [], [], 30)[0]
        device.terminate()
        self.assertEqual(0, device.wait(timeout=30))
        self.assertEqual("ready\n", is_told and device.stdout.readline())
        self.assertFalse(os.path.ismount(place))

    def test_a_read_takes_no_less_than_the_latency(self):
        device = Device(self, "--latency", "50ms", "--size", "64MiB")
        path = device.place / "file"
        path.write_bytes(b"-" * 4096)
        device.forget()
        begin = time.monotonic()
        self.assertEqual(4096, len(path.read_bytes()))
        self.assertGreaterEqual(time.monotonic() - begin, 0.05)

    def test_a_target_has_many_requests_in_service(self):
        device = Device(self, "--latency", "20ms", "--size", "256MiB")
        server = self.start(device)
        slow, _ = self.write_files(server, device)
        begin, stop = server.temporary / "begin", server.temporary / "stop"
        readers = [self.python(server, READ_AGAIN_AND_AGAIN, slow[i % len(slow)], begin, stop) for i in range(READERS)]
        for reader in readers:
            self.assertEqual("there\n", next_line(reader))
        begin.touch()

        def are_many():
            """many requests are in service at once, or a reader has failed"""
            # All that they read by now is in memory.
            device.forget()
            is_seen = server.status()["targets"][1]["in_service"] > 4
            return is_seen or any(reader.poll() is not None for reader in readers)

        wait_for(are_many, seconds=60)
        self.assertEqual([None] * READERS, [reader.poll() for reader in readers])
        stop.touch()
        for reader in readers:
            out, err = reader.communicate(timeout=60)
            self.assertEqual(("read\n", 0), (out, reader.returncode), err)

    def test_a_depth_is_kept(self):
        device = Device(self, "--latency", "5ms", "--size", "256MiB")
        server = self.start(device, more="depth = 2")
        slow, _ = self.write_files(server, device)
        device.forget()
        readers = [self.python(server, READ_FILE, slow[i % len(slow)]) for i in range(READERS)]
        while any(reader.poll() is None for reader in readers):
            target = server.status()["targets"][1]
            self.assertLessEqual(target["in_service"], 2)
            self.assertEqual(2, target["depth"])
        for reader in readers:
            out, err = reader.communicate(timeout=60)
            self.assertEqual(("reading\nread\n", 0), (out, reader.returncode), err)

    def hanging(self):
        """A device that hangs, its server, and the files that lie on it and that do not."""
        device = Device(self, "--latency", "1ms", "--size", "256MiB")
        server = self.start(device)
        slow, fast = self.write_files(server, device)
        device.forget()
        device.hang()
        self.addCleanup(device.go_on)
        return device, server, slow, fast

    def test_a_device_that_hangs_delays_nobody_else(self):
        device, server, slow, fast = self.hanging()
        readers = [self.python(server, READ_FILE, slow[i % len(slow)]) for i in range(READERS)]
        writers = [self.python(server, WRITE_SLOWLY, which) for which in slow[:4]]
        for program in readers + writers:
            self.assertIn(next_line(program), ["reading\n", "writing\n"])
        # Whatever those wait for: the other target works, and so do the metadata and the operator's commands.
        for repeat in range(3):
            server.run("python3", "-c", textwrap.dedent(WORK_ELSEWHERE), PREFIX, fast[repeat])
            server.run("ls", "-l", PREFIX)
            self.assertEqual(3, len(server.status()["targets"]))
        # The operator is told which it is.
        told = "NO ANSWER FROM TARGET 0 "
        wait_for(lambda: told in server.operate("status").stdout, 30)
        self.assertNotIn("NO ANSWER FROM TARGET 1 ", server.operate("status").stdout)
        device.go_on()
        wait_for(lambda: told not in server.operate("status").stdout, 60)
        for program in writers:
            out, err = program.communicate(timeout=100)
            self.assertEqual(("written\n", 0), (out, program.returncode), err)
        for program in readers:
            _, err = program.communicate(timeout=100)
            self.assertIn("AssertionError" if program.returncode else "", err)
        self.assertEqual(0, server.stop())

    def test_the_log_tells_what_the_end_of_a_server_waits_for(self):
        device, server, slow, _ = self.hanging()
        reader = self.python(server, READ_FILE, slow[0])
        self.assertEqual("reading\n", next_line(reader))
        wait_for(lambda: server.status()["targets"][1]["in_service"] > 0, 30)
        server.process.send_signal(signal.SIGTERM)
        wait_for(lambda: "has not ended yet" in server.log(), 60)
        told = next(line for line in server.log().splitlines() if "has not ended yet" in line)
        self.assertIn(f"0 ({device.place}/target), for ", told)
        self.assertIsNone(server.process.poll())
        device.go_on()
        self.assertEqual(0, server.stop())
        # It would wait for the next server.
        reader.kill()
        reader.communicate(timeout=60)


class MetadataOnDeviceThatHangs(DeviceCase):
    def test_while_the_device_of_the_metadata_hangs_open_files_are_read_and_written(self):
        # With checksums, a file that was not written for a while waits for the metadata before its first write. Rules for directories are looked at
        # as requests are taken in, one thread for all: whoever waited there would have everybody wait.
        rules = ["--policy", f"tbf{{path:{BELOW_RULE}=1GiB/s}}"]
        for checksums, policy in [(True, []), (False, []), (False, rules)]:
            with self.subTest(checksums=checksums, policy=policy):
                device = Device(self, "--latency", "1ms", "--size", "768MiB")
                elsewhere = tempfile.TemporaryDirectory(prefix="isonomia-target-", dir="/dev/shm")
                self.addCleanup(elsewhere.cleanup)
                config = Path(elsewhere.name) / "config.toml"
                target = f'[[targets]]\ndir = "{elsewhere.name}/target"\n'
                config.write_text(f"checksums = {str(checksums).lower()}\n{target}")
                server = self.server("--config", str(config), *policy, directory=device.place / "store")
                self.addCleanup(server.kill)
                server.run("mkdir", f"{PREFIX}{BELOW_RULE}", f"{PREFIX}/a")
                begin = Path(elsewhere.name) / "begin"
                program = self.python(server, WORK_WITH_OPEN_FILES, begin, not checksums)
                self.assertEqual("open\n", next_line(program), program.poll())
                # Where everything lies has to be found out anew.
                server.run("mv", f"{PREFIX}/a", f"{PREFIX}/b")
                # It is there before: whatever is being changed when the device hangs may keep a directory from being opened.
                waits = self.program(server, "python3", "-c", CHANGE_NAMES, PREFIX, timeout_s=100, stdin=subprocess.PIPE)
                self.assertEqual("changing\n", next_line(waits), waits.poll())
                # As a host does that is asked to drop its page cache: nothing that open files need has to be read by then.
                device.forget()
                device.hang()
                self.addCleanup(device.go_on)
                waits.stdin.write("go on\n")
                waits.stdin.flush()
                self.assertEqual("changed\n", next_line(waits), waits.poll())
                begin.touch()
                out, err = program.communicate(timeout=60)
                self.assertEqual(("done\n", 0), (out, program.returncode), err)
                self.assertEqual(2, len(server.status()["targets"]))
                device.go_on()
                _, err = waits.communicate(timeout=100)
                self.assertEqual(0, waits.returncode, err)
                self.assertEqual(0, server.stop())
