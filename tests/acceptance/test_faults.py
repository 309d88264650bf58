"""What happens when servers and clients are killed, disks fill, and doors are locked."""

import hashlib
import os
import shutil
import signal
import subprocess
import tempfile
import textwrap
import unittest
from pathlib import Path

from gluster import Gluster, can_have_gluster
from service import PREFIX, PROGRAM_S, Case, Server, next_line, wait_for

TIMEOUT_S = 3
# The exit code of a server that is to be started anew.
UNSYNCED = 4

WRITE_FOREVER = """
import os, sys
fd = os.open(f"{sys.argv[1]}/endless", os.O_WRONLY | os.O_CREAT)
print("writing", flush=True)
try:
    while True: os.pwrite(fd, b"x" * 1000000, 0)
except OSError as error:
    print(error.errno, flush=True)
"""

WRITE_AND_SYNC = """
import hashlib, os, sys
for i in range(100000):
    data = hashlib.sha256(str(i).encode()).digest() * (1 + i * 7919 % 20000)
    fd = os.open(f"{sys.argv[1]}/file-{i}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    assert os.write(fd, data) == len(data)
    os.fsync(fd)
    os.close(fd)
    print(i, hashlib.md5(data).hexdigest(), flush=True)
"""


class Restarts(Case):
    """What a server has after it was started anew."""

    TRANSPORT = "unix"

    def start(self, *options, **more):
        return self.server(*options, transport=self.TRANSPORT, **more)

    def python(self, server, script, **options):
        return self.program(server, "python3", "-c", textwrap.dedent(script), PREFIX, **options)

    def test_synced_files_survive_a_kill(self):
        server = self.start()
        for repeat in range(3):
            writer = self.python(server, WRITE_AND_SYNC.replace("file-", f"repeat{repeat}-"))
            written = dict(next_line(writer).split() for _ in range(60 + 40 * repeat))
            server.kill()
            writer.kill()
            rest, _ = writer.communicate()
            written.update(line.split() for line in rest.splitlines() if len(line.split()) == 2)
            server.start()
            names = [f"{PREFIX}/repeat{repeat}-{i}" for i in written]
            sums = server.run("md5sum", *names).stdout.split()[::2]
            self.assertEqual(list(written.values()), sums)
            mode = server.run("stat", "-c", "%a", names[0]).stdout
            self.assertEqual("600\n", mode)
        self.assertEqual(0, server.stop())

    def test_everything_survives_an_orderly_restart(self):
        server = self.start()
        server.run("bash", "-c", f"cd {PREFIX}; mkdir -p a/b; seq 10000 > a/b/f; ln -s b a/l; ln a/b/f g; chmod 710 a")
        describe = f"cd {PREFIX}; find . -mindepth 1 -printf '%P %y %m %l %T@\\n' | sort; md5sum a/l/f g"
        before = server.run("bash", "-c", describe).stdout
        for _ in range(3):
            self.assertEqual(0, server.stop())
            server.start()
            self.assertEqual(before, server.run("bash", "-c", describe).stdout)


@unittest.skipUnless(can_have_gluster(), "GlusterFS is not installed, or this is not root")
class RestartsOnGluster(Restarts):
    """The same with all files, and the metadata, on a network file system."""

    def start(self, *options, **more):
        home = Path(tempfile.mkdtemp(prefix="isonomia-gluster-"))
        self.addCleanup(shutil.rmtree, home)
        self.gluster = Gluster(home / "volume")
        self.addCleanup(self.gluster.remove)
        return super().start(*options, directory=self.gluster.mounts[0] / "files", **more)

    def test_a_volume_that_is_away_for_a_while_is_an_error_and_no_loss(self):
        server = self.start()
        for repeat in range(2):
            writer = self.python(server, WRITE_AND_SYNC.replace("file-", f"away{repeat}-"))
            written = [next_line(writer).split() for _ in range(20)]
            self.gluster.take_bricks_away()
            out, err = writer.communicate(timeout=PROGRAM_S)
            # Not that there was no space.
            self.assertIn("Input/output error", err)
            written += map(str.split, out.splitlines())
            failed = server.run("mkdir", f"{PREFIX}/new", check=False)
            self.assertIn("Input/output error", failed.stderr)
            self.assertIn(server.status()["metadata_failure"], ["failed", "unsynced"])
            self.assertRegex(server.operate("status").stdout, "NO CHANGES OF METADATA: (their storage|a sync of them) failed")
            self.gluster.bring_bricks_back()
            wait_for(lambda: self.is_changeable(server), 60)
            sums = server.run("md5sum", *(f"{PREFIX}/away{repeat}-{name}" for name, _ in written)).stdout.split()[::2]
            self.assertEqual([sum for _, sum in written], sums)

    def is_changeable(self, server):
        """The server takes changes; as whoever is told to start it again does."""
        if (code := server.process.poll()) is not None:
            self.assertEqual(UNSYNCED, code)
            server.start()
        return server.run("touch", f"{PREFIX}/again", check=False, timeout_s=1).returncode == 0


@unittest.skipUnless(shutil.which("strace") and os.geteuid() == 0, "strace is not installed, or this is not root")
class StorageThatFails(Case):
    def test_a_server_ends_when_its_storage_is_back_after_a_sync_of_metadata_that_failed(self):
        server = self.server()
        writer = self.program(server, "python3", "-c", WRITE_AND_SYNC, PREFIX, timeout_s=TIMEOUT_S)
        written = [next_line(writer).split() for _ in range(20)]
        journal = server.directory / "metadata" / "db" / "0.jnl"
        fault = ["-e", "trace=fdatasync", "-e", "inject=fdatasync:error=EIO", "-P", str(journal)]
        strace = subprocess.Popen(["strace", "-f", "-qq", "-o", "/dev/null", *fault, "-p", str(server.process.pid)])
        self.addCleanup(strace.wait)
        self.addCleanup(strace.terminate)
        out, err = writer.communicate(timeout=PROGRAM_S)
        self.assertIn("Input/output error", err)
        written += map(str.split, out.splitlines())
        # As long as a new start would meet the same, files can be read.
        self.assertEqual("unsynced", server.status()["metadata_failure"])
        self.check_sums(server, written)
        strace.terminate()
        self.assertEqual(UNSYNCED, server.process.wait(PROGRAM_S))
        self.assertIn("the server ends, and is to be started anew", server.log())
        server.start()
        self.check_sums(server, written)
        server.run("touch", f"{PREFIX}/again")

    def check_sums(self, server, written):
        sums = server.run("md5sum", *(f"{PREFIX}/file-{name}" for name, _ in written)).stdout.split()[::2]
        self.assertEqual([sum for _, sum in written], sums)


class Faults(Restarts):
    def test_a_killed_server_is_an_error_in_time(self):
        server = self.start()
        writer = self.python(server, WRITE_FOREVER, timeout_s=TIMEOUT_S)
        self.assertEqual("writing\n", next_line(writer))
        wait_for(lambda: server.run("stat", "-c", "%s", f"{PREFIX}/endless").stdout != "0\n")
        server.kill()
        out, err = writer.communicate(timeout=PROGRAM_S)
        self.assertEqual(0, writer.returncode, err)
        # One line says what is waited for, and for how long.
        self.assertRegex(err, rf"\A[^\n]*waiting for a server[^\n]*, {TIMEOUT_S} s at most[^\n]*\n\Z")
        self.assertIn(int(out), [110, 5])  # ETIMEDOUT, or EIO for what may not be sent twice

    def test_a_server_that_is_not_there_is_an_error_in_time(self):
        server = self.start()
        server.kill()
        for program in [["cat", f"{PREFIX}/f"], ["ls", PREFIX], ["touch", f"{PREFIX}/f"]]:
            with self.subTest(program):
                done = server.run(*program, check=False, timeout_s=1)
                self.assertGreater(done.returncode, 0)
                self.assertIn("timed out", done.stderr.lower())

    def test_a_stopped_server_is_an_error_in_time(self):
        server = self.start()
        writer = self.python(server, WRITE_FOREVER, timeout_s=TIMEOUT_S)
        self.assertEqual("writing\n", next_line(writer))
        server.process.send_signal(signal.SIGSTOP)
        self.addCleanup(server.process.send_signal, signal.SIGCONT)
        out, _ = writer.communicate(timeout=PROGRAM_S)
        self.assertIn(int(out), [110, 5])

    def test_a_program_goes_on_when_the_server_comes_back(self):
        server = self.start()
        writer = self.python(
            server,
            """
            import os, sys
            fd = os.open(f"{sys.argv[1]}/f", os.O_RDWR | os.O_CREAT)
            os.pwrite(fd, b"before", 0); os.fsync(fd); print("written", flush=True)
            for i in range(300):
                if i == 150: sys.stdin.readline(); sys.stdin.close()
                os.pwrite(fd, b"x" * 100000, 6 + i * 100000)
            print(os.pread(fd, 7, 0), os.fstat(fd).st_size)
            """,
            timeout_s=30,
            stdin=subprocess.PIPE,
        )
        self.assertEqual("written\n", next_line(writer))
        server.kill()
        # However fast it writes, half of that is yet to come.
        writer.stdin.write("go on\n")
        writer.stdin.flush()
        if self.TRANSPORT == "tcp":
            # The same port again, which was chosen by the system.
            server.options = (*server.options, "--listen", server.address)
        server.start()
        out, err = writer.communicate(timeout=60)
        self.assertEqual("b'beforex' 30000006\n", out, err)
        # If it takes more than a second to start the server, it says for what it waits.
        self.assertRegex(err, r"\A([^\n]*waiting for a server[^\n]*, 30 s at most[^\n]*\n)?\Z")

    def test_a_killed_client_is_cleaned_up(self):
        server = self.start("--bandwidth", "300MiB/s")
        victim = self.program(server, "dd", "if=/dev/zero", f"of={PREFIX}/victim", "bs=4M", "count=1000000", job="victim")
        other = self.program(server, "dd", "if=/dev/zero", f"of={PREFIX}/other", "bs=1M", "count=1000000", job="other")

        def both():
            """both jobs write"""
            jobs = {job["job"]: job for job in server.status()["jobs"]}
            return all(jobs.get(name, {}).get("written_bytes_total", 0) > 8 << 20 for name in ["victim", "other"])

        wait_for(both)
        victim.send_signal(signal.SIGKILL)
        victim.wait(10)

        def gone():
            """the victim has no clients, nothing queued, and no share"""
            job = server.job("victim")
            return job is None or (job["clients"], job["queued"], job["share_due"]) == (0, 0, 0)

        wait_for(gone)
        before = server.job("other")["written_bytes_total"]
        wait_for(lambda: server.job("other")["written_bytes_total"] > before + (32 << 20))
        self.assertIsNone(other.poll())
        server.run("rm", f"{PREFIX}/victim")

    def test_many_killed_clients_leave_nothing(self):
        server = self.start()
        descriptors = lambda: len(os.listdir(f"/proc/{server.process.pid}/fd"))  # noqa: E731
        before = None
        for _ in range(5):
            crowd = [
                self.program(server, "dd", "if=/dev/zero", f"of={PREFIX}/f{i}", "bs=1M", "count=1000000", job=f"j{i}")
                for i in range(8)
            ]
            wait_for(lambda: sum(job["written_bytes_total"] > 0 for job in server.status()["jobs"]) >= 8)
            for program in crowd:
                program.kill()
                program.wait(10)
            wait_for(lambda: server.status()["connections"] <= 1)
            server.run("bash", "-c", f"rm {PREFIX}/f*")
            # Descriptors of objects may stay open for a while, but not more with every crowd.
            before = before or descriptors()
        wait_for(lambda: descriptors() < before + 20)

    def test_a_second_server_on_the_same_directory_is_refused(self):
        server = self.start()
        server.run("touch", f"{PREFIX}/f")
        second = Server(directory=server.directory)
        self.addCleanup(second.remove)
        with self.assertRaises(AssertionError) as refused:
            second.start()
        self.assertIn("ended with 1", str(refused.exception))
        self.assertIn(str(server.directory), second.log())
        self.assertIn(str(server.process.pid), second.log())
        server.run("cat", f"{PREFIX}/f")

    def test_a_second_server_at_the_same_address_is_refused(self):
        server = self.start()
        second = Server("--listen", server.ready["listen"][0])
        self.addCleanup(second.remove)
        with self.assertRaises(AssertionError):
            second.start()
        self.assertIn("in use", second.log())
        server.run("ls", PREFIX)

    def test_a_full_disk(self):
        disk = self.tmpfs("160M")
        server = self.start(directory=disk / "files")
        server.run("bash", "-c", f"head -c 20000000 /dev/urandom > {PREFIX}/early; sync {PREFIX}/early")
        wanted = server.run("md5sum", f"{PREFIX}/early").stdout
        full = server.run("dd", "if=/dev/zero", f"of={PREFIX}/huge", "bs=1M", "count=400", "status=none", check=False)
        self.assertEqual(1, full.returncode)
        self.assertIn("No space left on device", full.stderr)
        self.assertEqual(wanted, server.run("md5sum", f"{PREFIX}/early").stdout)
        server.run("rm", f"{PREFIX}/huge")
        server.run("dd", "if=/dev/zero", f"of={PREFIX}/again", "bs=1M", "count=20", "status=none", "conv=fsync")
        server.kill()
        server.start()
        self.assertEqual(wanted, server.run("md5sum", f"{PREFIX}/early").stdout)
        self.assertEqual(f"{20 << 20}\n", server.run("stat", "-c", "%s", f"{PREFIX}/again").stdout)

    def test_a_disk_that_is_full_of_names(self):
        disk = self.tmpfs("96M")
        server = self.start(directory=disk / "files")
        server.run("bash", "-c", f"seq 100000 > {PREFIX}/early; sync {PREFIX}/early")
        (disk / "ballast").write_bytes(b"")
        with open(disk / "ballast", "ab", buffering=0) as ballast:
            try:
                while ballast.write(b"x" * 65536):
                    pass
            except OSError:
                pass
        # Metadata has nowhere to go either: an error at some point, and no damage.
        script = f"for i in $(seq 2000); do mkdir {PREFIX}/d$i || exit 3; seq 500 > {PREFIX}/d$i/f || exit 4; done"
        outcome = server.run("bash", "-c", script, check=False).returncode
        self.assertIn(outcome, [3, 4])
        wanted = hashlib.md5("".join(f"{i}\n" for i in range(1, 100001)).encode()).hexdigest()
        self.assertIn(wanted, server.run("md5sum", f"{PREFIX}/early").stdout)
        (disk / "ballast").unlink()
        server.kill()
        server.start()
        self.assertIn(wanted, server.run("md5sum", f"{PREFIX}/early").stdout)
        server.run("bash", "-c", f"mkdir {PREFIX}/after; seq 10 > {PREFIX}/after/f")

    def tmpfs(self, size):
        """A file system of this size; skips the test where none can be mounted."""
        server_dir = Server().temporary
        self.addCleanup(server_dir.rmdir)
        mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "isonomia-test", str(server_dir)]
        if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, timeout=PROGRAM_S).returncode:
            self.skipTest("needs root to mount a small file system")
        self.addCleanup(subprocess.run, ["umount", "-l", str(server_dir)], timeout=PROGRAM_S, check=True)
        return server_dir


class FaultsOverTcp(Faults):
    """The same with a key over TCP."""

    TRANSPORT = "tcp"
