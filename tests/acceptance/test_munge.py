"""Users of other hosts: each host is a network namespace with a munge daemon of its own, all have one key."""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import tempfile
import unittest
from pathlib import Path

from hosts import Network, can_have_hosts
from service import PREFIX, Case, Server, clean_environment, isonomia, wait_for

MUNGED = shutil.which("munged") or "/usr/sbin/munged"
ALICE, MALLORY = 1_234_501, 1_234_502
PROGRAM_S = 300


class Munged:
    def __init__(self, key):
        self.directory = Path(tempfile.mkdtemp(prefix="isonomia-munge-"))
        self.directory.chmod(0o755)
        (self.directory / "key").write_bytes(key)
        (self.directory / "key").chmod(0o600)
        self.socket = self.directory / "socket"
        files = {"key-file": "key", "socket": "socket", "log-file": "log", "pid-file": "pid", "seed-file": "seed"}
        options = [f"--{option}={self.directory / name}" for option, name in files.items()]
        quiet = {name: subprocess.DEVNULL for name in ["stdin", "stdout", "stderr"]}
        self.process = subprocess.Popen([MUNGED, "--foreground", *options], **quiet)
        wait_for(self.listens)

    def listens(self):
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(self.socket))
            return True
        return False

    def remove(self):
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.directory)


@unittest.skipUnless(Path(MUNGED).exists(), "munge is not installed")
@unittest.skipUnless(can_have_hosts(), "network namespaces need root and ip")
class UsersOfOtherHosts(Case):
    def setUp(self):
        key = os.urandom(64)
        # The server, and two hosts of clients.
        self.network = Network(3)
        self.addCleanup(self.network.remove)
        self.daemons = [Munged(key) for _ in range(3)]
        for daemon in self.daemons:
            self.addCleanup(daemon.remove)
        munge = ["--auth", "munge", "--munge-socket", self.daemons[0].socket, "--name", "one"]
        within = self.network.within(1)
        self.server = Server("--listen", "tcp:0.0.0.0:0", *map(str, munge), within=within)
        self.addCleanup(self.server.remove)
        self.server.start()
        listen = next(address for address in self.server.ready["listen"] if address.startswith("tcp:"))
        self.port = listen.rsplit(":", 1)[1]

    def run_as(self, user, host, command, *options, check=True, name="one"):
        """Runs `isonomia COMMAND` as `user` on client host 0 or 1."""
        reach = ["--server", f"tcp:{self.network.address(1)}:{self.port}", "--server-name", name]
        munge = ["--munge-socket", str(self.daemons[1 + host].socket)]
        within = [*self.network.within(2 + host), "setpriv", "--reuid", user, "--regid", user, "--clear-groups"]
        done = subprocess.run(
            [*map(str, within), isonomia(), command, *reach, *munge, *options],
            env=clean_environment(), capture_output=True, text=True, timeout=PROGRAM_S, stdin=subprocess.DEVNULL,
        )
        if check:
            self.assertEqual(0, done.returncode, f"{done.stdout}{done.stderr}{self.server.log()}")
        return done

    def shell(self, user, host, script, **more):
        return self.run_as(user, host, "run", "--", "bash", "-c", script, **more)

    def test_each_has_his_files_and_his_account_and_is_nobody_else(self):
        self.server.run("chmod", "1777", PREFIX)
        self.shell(ALICE, 0, f"umask 077; cd {PREFIX}; head -c 100000 /dev/zero >hers; stat -c %u:%g hers >owner")
        self.assertEqual(f"{ALICE}:{ALICE}\n", self.shell(ALICE, 0, f"cat {PREFIX}/owner").stdout)
        self.shell(MALLORY, 1, f"cd {PREFIX}; head -c 50000 /dev/zero >his; chmod 600 his")
        for user, host, name in [(MALLORY, 1, "hers"), (ALICE, 0, "his")]:
            done = self.shell(user, host, f"cat {PREFIX}/{name}", check=False)
            self.assertIn("Permission denied", done.stderr)
        # The same user on the other host is the same user, also to the shares.
        self.assertEqual("100000\n", self.shell(ALICE, 1, f"wc -c <{PREFIX}/hers").stdout)
        claimed = self.shell(MALLORY, 1, f"ISONOMIA_USER=root cat {PREFIX}/hers", check=False)
        self.assertIn("Permission denied", claimed.stderr)
        status = json.loads(self.run_as(ALICE, 0, "status", "--json").stdout)
        written = {job["user"]: job["written_bytes_total"] for job in status["jobs"]}
        self.assertEqual(50_000, written[str(MALLORY)])
        self.assertLessEqual(100_000, written[str(ALICE)])
        other = self.run_as(ALICE, 0, "status", check=False, name="two")
        self.assertIn('"one" listens there, and not "two"', other.stderr)
