"""Users of other hosts in a cluster: servers and clients, each on a host of its own, prove by munge who they are."""

import os
import shutil
import signal
import subprocess
import tempfile
import unittest
from pathlib import Path

import cluster_on_hosts
from hosts import Network, can_have_hosts
from service import PREFIX, SERVER_S, Case, clean_environment, if_all_answer, isonomia, next_line, wait_for
from test_munge import ALICE, MALLORY, MUNGED, PROGRAM_S, Munged

PORT = 7411
SERVERS = 2
# Host numbers of Alice's and Mallory's programs.
HERS, HIS = 3, 4
# Its stripes of 64 KiB are on both servers.
BYTES = 1_000_000


class Member(cluster_on_hosts.Member):
    def proof(self):
        # What servers have in common for striping opens nothing to clients.
        return ["--auth", "munge", "--munge-socket", str(self.cluster.socket(self.host)), "--cluster-key-file", str(self.key_file)]


@unittest.skipUnless(Path(MUNGED).exists(), "munge is not installed")
@unittest.skipUnless(can_have_hosts(), "network namespaces need root and ip")
class ClusterOfUsers(Case):
    def setUp(self):
        super().setUp()
        self.network = Network(HIS)
        self.addCleanup(self.network.remove)
        munge_key = os.urandom(64)
        self.daemons = [Munged(munge_key) for _ in range(HIS)]
        for daemon in self.daemons:
            self.addCleanup(daemon.remove)
        self.directory = Path(tempfile.mkdtemp(prefix="isonomia-acceptance-"))
        self.directory.chmod(0o755)
        self.addCleanup(shutil.rmtree, self.directory, ignore_errors=True)
        self.key_file, self.file = self.directory / "key", self.directory / "cluster.toml"
        self.key_file.write_bytes(os.urandom(32))
        self.key_file.chmod(0o600)
        server = '[[server]]\nname = "io{0}"\nnumber = {0}\ndir = "{1}/io{0}"\nlisten = ["tcp:{2}:{3}"]\n'
        servers = (server.format(number, self.directory, self.network.address(number), PORT) for number in range(1, SERVERS + 1))
        self.file.write_text('name = "users"\nepoch = 1\n' + "".join(servers))
        self.members = [Member(self, number) for number in range(1, SERVERS + 1)]
        for member in self.members:
            self.addCleanup(member.remove)
            member.start()
        for member in self.members:
            member.ready()

    def within(self, host):
        return self.network.within(host)

    def socket(self, host):
        return self.daemons[host - 1].socket

    def run_as(self, user, host, command, *options, check=True, server=1):
        """Runs `isonomia COMMAND` as `user` on a host; it is given the address of one server."""
        reach = ["--server", f"tcp:{self.network.address(server)}:{PORT}", "--munge-socket", self.socket(host)]
        within = [*self.network.within(host), "setpriv", "--reuid", user, "--regid", user, "--clear-groups"]
        done = subprocess.run(
            [*map(str, [*within, isonomia(), *command.split(), *reach, *options])],
            env=clean_environment(), capture_output=True, text=True, timeout=PROGRAM_S, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        if check:
            logs = "\n".join(f"{member.name}: {member.log(8)}" for member in self.members)
            self.assertEqual(0, done.returncode, f"{done.stdout}{done.stderr}{logs}")
        return done

    def shell(self, user, host, script, **more):
        return self.run_as(user, host, "run", "--", "bash", "-c", script, **more)

    def sum_of(self, user, host, path, server):
        return self.shell(user, host, f"md5sum <{path}", server=server).stdout

    def written(self):
        """What each user has written to each server."""
        status = wait_for(lambda: if_all_answer(self.run_as(0, HERS, "status --json").stdout), SERVER_S)
        jobs = lambda server: server["status"]["jobs"]  # noqa: E731
        return [{job["user"]: job["written_bytes_total"] for job in jobs(server)} for server in status["servers"]]

    def test_each_is_himself_on_all_servers(self):
        for volume, name in [("hers", "io2"), ("his", "io1")]:
            self.run_as(0, HERS, "volume create", volume, "--mode", "1777", "--on", name)
        self.shell(ALICE, HERS, f"mkdir {PREFIX}/hers/striped")
        self.run_as(ALICE, HERS, "stripe set", "--count", "2", "--size", "64KiB", f"{PREFIX}/hers/striped")
        file = f"{PREFIX}/hers/striped/file"
        self.shell(ALICE, HERS, f"umask 077; head -c {BYTES} /dev/urandom >{file}; sync {file}")
        self.assertEqual(f"{ALICE}:{ALICE} {BYTES}\n", self.shell(ALICE, HIS, f"stat -c '%u:%g %s' {file}").stdout)
        whole = self.sum_of(ALICE, HERS, file, 1)
        self.assertEqual(whole, self.sum_of(ALICE, HIS, file, 2), "the same user on another host, through the other server")
        # What each has written is charged to him, on both servers.
        self.shell(MALLORY, HIS, f"head -c 50000 /dev/zero >{PREFIX}/his/file")
        for charged in self.written():
            self.assertGreaterEqual(charged[str(ALICE)], BYTES // 3)
        self.assertEqual(50_000, sum(charged.get(str(MALLORY), 0) for charged in self.written()))
        # He is not her, at either server.
        for server in [1, 2]:
            for script in [f"cat {file}", f"ISONOMIA_USER={ALICE} cat {file}", f"rm -f {file}", f"truncate -s 0 {file}"]:
                done = self.shell(MALLORY, HIS, script, check=False, server=server)
                self.assertRegex(done.stderr, "Permission denied|Operation not permitted", script)
        # The policy is root's to set, of all servers, whichever is asked.
        for user in [ALICE, MALLORY]:
            self.assertNotEqual(0, self.run_as(user, HIS, "policy set", "size-fair", check=False).returncode)
        self.assertIn("version 1", self.run_as(0, HIS, "policy set", "job-fair", server=2).stdout)
        # A server that is killed comes back, and proves to the other one who it is.
        reader = f"for n in $(seq 40); do md5sum <{file}; done"
        for member in self.members:
            reading = subprocess.Popen(
                [*map(str, [*self.network.within(HERS), "setpriv", "--reuid", ALICE, "--regid", ALICE, "--clear-groups"]),
                 isonomia(), "run", "--server", f"tcp:{self.network.address(1)}:{PORT},tcp:{self.network.address(2)}:{PORT}",
                 "--munge-socket", str(self.socket(HERS)), "--", "bash", "-c", reader],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=clean_environment(),
            )  # fmt: skip
            self.addCleanup(reading.kill)
            first = next_line(reading)
            member.process.send_signal(signal.SIGKILL)
            member.process.wait()
            member.process.stdout.close()
            member.start().ready()
            out, err = reading.communicate(timeout=PROGRAM_S)
            self.assertEqual((whole * 39, 0), (out, reading.returncode), err)
            self.assertEqual(whole, first)
            done = self.shell(MALLORY, HIS, f"cat {file}", check=False, server=member.number)
            self.assertIn("Permission denied", done.stderr)
        wait_for(lambda: self.run_as(0, HERS, "policy show").stdout.count("job-fair") >= SERVERS)
        # Changes that take both servers.
        self.shell(ALICE, HERS, f"cd {PREFIX}/hers/striped; truncate -s 70000 file; cp file copy; rm file; mkdir {PREFIX}/new")
        self.assertEqual("70000\n", self.shell(ALICE, HIS, f"wc -c <{PREFIX}/hers/striped/copy", server=2).stdout)

    def test_who_knows_another_munge_key_is_nobody(self):
        stranger = Munged(os.urandom(64))
        self.addCleanup(stranger.remove)
        self.daemons[HIS - 1] = stranger
        for server in [1, 2]:
            done = self.shell(0, HIS, f"ls {PREFIX}", check=False, server=server)
            self.assertNotEqual(0, done.returncode)
            self.assertIn("munge", done.stderr)
