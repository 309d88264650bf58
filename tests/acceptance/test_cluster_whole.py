"""What operators do with a cluster as one: its policy, its state, where its volumes are."""

import json
import os
import signal
import subprocess
import textwrap
import threading

import test_cluster
from service import PREFIX, SERVER_S, Case, clean_environment, if_all_answer, isonomia, wait_for


class WholeClusters(Case):
    def cluster(self):
        cluster = test_cluster.Cluster()
        self.addCleanup(cluster.remove)
        return cluster.start()

    def ask(self, member, *command):
        return json.loads(member.operate(*command, "--json").stdout)

    def policies(self, member):
        """What each server follows, as `member` tells."""
        told = self.ask(member, "policy", "get")
        self.assertEqual([server["name"] for server in told["servers"]], ["io1", "io2", "io3"])
        return told, {server["name"]: server for server in told["servers"]}

    def followed(self, member):
        """The policy of the cluster, and that of each server: name, draw and version, and whether it deviates."""
        told, servers = self.policies(member)
        each = [(server["policy"], server["draw"], server["version"], server["deviates"]) for server in servers.values()]
        return [(told["policy"], told["draw"], told["version"]), *each]

    def states(self, member):
        """Which servers answer, as `member` tells."""
        return {server["name"]: server["state"] for server in self.ask(member, "status")["servers"]}

    def says(self, text, member, *command):
        """Waits until a command says this."""
        wait_for(lambda: text in member.operate(*command).stdout, SERVER_S)

    def volume_on(self, member, name):
        member.operate("volume", "create", name, "--on", member.name)
        return f"{PREFIX}/{name}"


class Policies(WholeClusters):
    def test_a_policy_reaches_all_servers_through_any_one(self):
        first, second, third = self.cluster().members
        told, _ = self.policies(second)
        self.assertEqual(told["version"], 0)
        done = second.operate("policy", "set", "job-fair", "--draw", "lottery").stdout.splitlines()
        # More is said of servers that did not answer within a second.
        self.assertEqual(done[0], "job-fair (lottery), version 1")
        wanted = [("job-fair", "lottery", 1), *[("job-fair", "lottery", 1, False)] * 3]
        for member in (first, second, third):
            self.becomes(lambda: self.followed(member), wanted)
            self.assertEqual(member.status()["policy"], "job-fair")
        # Who does not take it is told by name, and takes it later; the draw is kept if none is given.
        third.kill()
        done = first.operate("policy", "set", "size-fair").stdout.splitlines()
        self.assertEqual(done[0], "size-fair (lottery), version 2")
        said = {line.split()[0]: line for line in done[1:]}
        self.assertEqual(len(said), len(done) - 1, done)
        self.assertIn("io3 is away, and takes it before it serves again: ", said["io3"])
        followed = ("size-fair", "lottery", 2, False)
        self.becomes(lambda: self.followed(second), [followed[:3], followed, followed, (None, None, None, None)])
        self.assertEqual(self.states(second)["io3"], "away")
        third.start()
        third.run("ls", PREFIX)
        self.becomes(lambda: self.followed(second), [followed[:3], followed, followed, followed])
        # All servers know it after a kill of all.
        for member in (first, second, third):
            member.kill()
        for member in (first, second, third):
            member.start()
        for member in (first, second, third):
            self.assertEqual(member.status()["policy"], "size-fair")

    def test_a_server_that_comes_back_serves_nobody_before_it_has_the_policy(self):
        first, second, third = self.cluster().members
        directory = self.volume_on(third, "v")
        first.operate("policy", "set", "job-fair")
        third.kill()
        first.operate("policy", "set", "fifo")
        os.kill(first.process.pid, signal.SIGSTOP)
        # Should the test end before that, the process is killed all the same.
        goes_on = threading.Timer(1.5, lambda: os.kill(first.process.pid, signal.SIGCONT))
        self.addCleanup(goes_on.cancel)
        third.start()
        goes_on.start()
        third.run("ls", directory)
        self.assertEqual(third.status()["policy"], "fifo")

    def test_one_server_may_deviate_until_the_next_policy(self):
        first, second, third = self.cluster().members
        first.operate("policy", "set", "job-fair")
        self.assertEqual(first.operate("policy", "set", "fifo", "--server", "io2").stdout, "fifo (virtual-time)\n")
        cluster = ("job-fair", "virtual-time", 1)
        follows = (*cluster, False)
        deviates = ("fifo", "virtual-time", 1, True)
        self.becomes(lambda: self.followed(third), [cluster, follows, deviates, follows])
        self.says("deviates", third, "policy", "show")
        self.assertEqual(third.operate("policy", "show", "--server", "io2").stdout, "fifo (virtual-time)\n")
        second.kill()
        second.start()
        second.run("ls", PREFIX)
        self.assertEqual(second.status()["policy"], "job-fair")
        first.operate("policy", "set", "fifo", "--server", "io2")
        third.operate("policy", "set", "size-fair")
        follows = ("size-fair", "virtual-time", 2, False)
        self.becomes(lambda: self.followed(first), [follows[:3], follows, follows, follows])

    def test_without_the_root_server_the_policy_stays(self):
        first, second, _ = self.cluster().members
        second.operate("policy", "set", "job-fair")
        first.kill()
        refused = second.operate("policy", "set", "fifo", check=False)
        self.assertEqual(refused.returncode, 1)
        self.assertIn("the policy is not set: io1, the root server, does not answer", refused.stderr)
        self.becomes(lambda: self.states(second), {"io1": "away", "io2": "answers", "io3": "answers"})
        follows = ("job-fair", "virtual-time", 1, False)
        self.becomes(lambda: self.followed(second), [follows[:3], (None, None, None, None), follows, follows])


class States(WholeClusters):
    def test_any_server_shows_all_and_jobs_over_all(self):
        members = self.cluster().members
        for number, member in enumerate(members, 1):
            place = self.volume_on(member, f"of-{member.name}")
            # Through another server than that of the volume.
            members[number % 3].run("dd", "if=/dev/zero", f"of={place}/file", "bs=64k", f"count={number}", job="writer")
        report = wait_for(lambda: if_all_answer(members[1].operate("status", "--json").stdout), SERVER_S)
        self.assertEqual((report["cluster"], report["root"], report["epoch"]), ("acceptance", "io1", 1))
        self.assertEqual([server["name"] for server in report["servers"]], ["io1", "io2", "io3"])
        of_each = [member.job("writer")["written_bytes_total"] for member in members]
        self.assertEqual(of_each, [1 << 16, 2 << 16, 3 << 16])
        [writer] = [job for job in report["jobs"] if job["job"] == "writer"]
        self.assertEqual(writer["written_bytes_total"], 6 << 16)
        shares = sum(job["share_received"] for job in report["jobs"] if job["data_service_ns"])
        self.assertAlmostEqual(shares, 1.0 if shares else 0.0)
        self.says("cluster acceptance epoch 1, root on io1; 3 of 3 servers answer", members[2], "status")
        # One of them, in detail, through another one.
        alone = self.ask(members[0], "status", "--server", "io2")
        self.assertEqual((alone["cluster"]["server"], alone["server"]), ("io2", 2))
        twice = lambda: members[0].operate("top", "--count", "2", "--interval", "50ms").stdout  # noqa: E731
        self.becomes(lambda: twice().count("3 of 3 servers answer"), 2)

    def test_a_server_that_does_not_answer_is_away_and_the_rest_is_shown(self):
        first, second, third = self.cluster().members
        for stop in (lambda: os.kill(third.process.pid, signal.SIGSTOP), third.kill):
            stop()
            self.becomes(lambda: self.states(first), {"io1": "answers", "io2": "answers", "io3": "away"})
            self.says("2 of 3 servers answer", second, "status")
            self.assertIn("io3: away: ", second.operate("top", "--count", "1").stdout)
        refused = first.operate("status", "--server", "io3", check=False)
        self.assertIn("io3 does not answer: ", refused.stderr)
        refused = third.operate("status", check=False)
        self.assertIn("is a server running there?", refused.stderr)

    def test_who_is_not_there_is_named_with_those_who_are(self):
        first = self.cluster().members[0]
        refused = first.operate("status", "--server", "io9", check=False)
        self.assertEqual(refused.returncode, 1)
        self.assertIn('cluster acceptance has no server "io9" (allowed: io[1-3])', refused.stderr)
        refused = first.operate("policy", "set", "fifo", "--server", "io1", "--server", "io2", check=False)
        self.assertIn("--server names two servers, io1 and io2", refused.stderr)


class Volumes(WholeClusters):
    def test_the_root_is_listed_while_its_server_is_away(self):
        first, second, third = self.cluster().members
        for member in (second, third):
            self.volume_on(member, f"of-{member.name}")
            member.run("touch", f"{PREFIX}/of-{member.name}/file")
        wait_for(lambda: len(self.ask(second, "volume", "list")["volumes"]) == 2)
        first.kill()
        wait_for(lambda: "listed from a copy" in second.log(), 30)
        self.assertEqual(second.run("ls", PREFIX).stdout.split(), ["of-io2", "of-io3"])
        self.assertEqual(second.run("ls", f"{PREFIX}/of-io3").stdout.split(), ["file"])
        refused = second.run("chmod", "700", PREFIX, check=False, timeout_s=1)
        self.assertNotEqual(refused.returncode, 0)
        refused = second.run("touch", f"{PREFIX}/new", check=False, timeout_s=1)
        self.assertNotEqual(refused.returncode, 0)
        # Who has not noticed that it was away does not say that it is back.
        wait_for(lambda: "listed from a copy" in third.log(), 30)
        first.start()
        for member in (second, third):
            wait_for(lambda: "is back" in member.log(), 30)
        second.run("touch", f"{PREFIX}/new")
        self.assertEqual(third.run("ls", PREFIX).stdout.split(), ["new", "of-io2", "of-io3"])

    def test_new_volumes_go_to_servers_that_are_there(self):
        first, second, third = self.cluster().members
        third.kill()
        # One that its name leads there waits for it; by then the root server has heard nothing of it for too long.
        failed = []
        for name in [f"v{number}" for number in range(24)]:
            if second.run("mkdir", f"{PREFIX}/{name}", check=False, timeout_s=12).returncode:
                failed.append(name)
        self.assertLessEqual(len(failed), 1, failed)
        listed = {volume["name"]: volume["server"] for volume in self.ask(first, "volume", "list")["volumes"]}
        servers = [listed[f"v{number}"] for number in range(24) if f"v{number}" not in failed]
        self.assertEqual({"io1", "io2"}, set(servers), servers)


# How often a move is asked for at most.
MOVES_ASKED = 3
# Opens files, writes to them, and does what can be done with them at each line of its input.
HOLDER = """
import errno, json, os, sys
place = sys.argv[1]
os.mkdir(f"{place}/sub")
file = os.open(f"{place}/sub/file", os.O_CREAT | os.O_RDWR, 0o644)
read_only = os.open(f"{place}/sub/file", os.O_RDONLY)
directory = os.open(f"{place}/sub", os.O_RDONLY | os.O_DIRECTORY)
os.chdir(f"{place}/sub")
written = b""

def check(found, wanted):
    if found != wanted:
        raise SystemExit(f"{found} instead of {wanted}")

def write():
    global written
    more = f"{len(written)} ".encode()
    os.pwrite(file, more, len(written))
    written += more

def opened(path, **how):
    descriptor = os.open(path, os.O_RDONLY, **how)
    try:
        check(os.read(descriptor, 100), written)
    finally:
        os.close(descriptor)

steps = {
    "write": write,
    "read": lambda: check(os.pread(read_only, 100, 0), written),
    "fstat": lambda: check(os.fstat(file).st_size, len(written)),
    "fsync": lambda: os.fsync(file),
    "ftruncate": lambda: os.ftruncate(file, len(written)),
    "list": lambda: check(os.listdir(directory), ["file"]),
    "openat": lambda: opened("file", dir_fd=directory),
    "by name": lambda: opened(f"{place}/sub/file"),
    "by name, relative": lambda: opened("file"),
    "by name, listed": lambda: check(os.listdir(f"{place}/sub"), ["file"]),
}
for line in sys.stdin:
    outcomes = {}
    for name, step in steps.items():
        try:
            step()
            outcomes[name] = "done"
        except OSError as error:
            outcomes[name] = errno.errorcode[error.errno]
    print(json.dumps(outcomes), flush=True)
"""


class Moves(WholeClusters):
    """A volume goes to another server, whatever stops on the way."""

    def fill(self, member, place):
        program = textwrap.dedent(f"""
            import os
            os.chdir("{place}")
            os.mkdir("dir")
            for number in range(40):
                with open(f"dir/{{number}}", "wb") as file:
                    file.write(bytes([number]) * (number * 5_000))
                os.utime(f"dir/{{number}}", (number, number))
            with open("sparse", "wb") as file:
                file.seek(50 << 20)
                file.write(b"end")
            os.link("sparse", "dir/same")
            os.symlink("dir/3", "link")
            os.setxattr("dir", "user.what", b"x" * 3_000)
            os.chmod("dir/1", 0o4711)
        """)
        member.run("python3", "-c", program)

    def seen(self, member, place):
        program = textwrap.dedent(f"""
            import hashlib, os
            for path, dirs, files in os.walk("{place}"):
                dirs.sort()
                for name in [".", *dirs, *sorted(files)]:
                    full = os.path.join(path, name)
                    stat = os.lstat(full)
                    data = b""
                    if os.path.isfile(full):
                        data = open(full, "rb").read()
                    print(full, stat.st_ino, oct(stat.st_mode), stat.st_nlink, stat.st_size, stat.st_mtime_ns, stat.st_uid,
                          hashlib.sha256(data).hexdigest(), os.listxattr(full, follow_symlinks=False))
        """)
        return member.run("python3", "-c", program).stdout

    def where(self, member, name):
        [volume] = [volume for volume in self.ask(member, "volume", "list")["volumes"] if volume["name"] == name]
        return volume["server"], volume.get("moving")

    def test_a_volume_is_the_same_on_another_server(self):
        first, second, third = self.cluster().members
        place = self.volume_on(second, "v")
        self.fill(first, place)
        before = self.seen(third, place)
        done = first.operate("volume", "move", "v", "--to", "io3")
        self.assertEqual(done.stdout, "v is on io3\n")
        wait_for(lambda: all(self.where(member, "v") == ("io3", None) for member in (first, second, third)))
        for member in (first, second, third):
            self.assertEqual(self.seen(member, place), before)
        wait_for(lambda: second.status()["cluster"]["volumes"] == [])
        # The server that had it is not needed for it any more, and it can go on, also to the root server.
        second.kill()
        third.run("touch", f"{place}/new")
        third.operate("volume", "move", "v", "--to", "io1")
        self.assertEqual(self.where(first, "v"), ("io1", None))
        first.run("rm", f"{place}/new")
        self.assertEqual(self.seen(first, place).splitlines()[1:], before.splitlines()[1:])
        # It is where it is to be: nothing happens.
        self.assertEqual(first.operate("volume", "move", "v", "--to", "io1").stdout, "v is on io1\n")
        first.run("rm", "-r", place)

    def begin_to_move(self, first, to):
        """Has volume v moved, and kills whoever asked for it once it is on its way."""
        tool = subprocess.Popen(
            [isonomia(), "volume", "move", "v", "--to", to.name, *first.reach()],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=clean_environment(),
        )
        try:
            wait_for(lambda: self.where(first, "v")[1] or self.where(first, "v")[0] == to.name or tool.poll())
        finally:
            tool.kill()
            _, said = tool.communicate()
        self.assertNotEqual(tool.returncode, 1, said)

    def test_a_move_goes_on_whoever_is_killed(self):
        first, second, third = self.cluster().members
        place = self.volume_on(second, "v")
        self.fill(first, place)
        before = self.seen(third, place)
        targets = [third, second]
        for victim in (second, third, first, second):
            to = targets[0]
            targets.reverse()
            # A move that has begun is given up if a file of the volume is open still, as it is until the end of the program that looked last
            # is noticed: whoever asked would be told. Then it is asked for again; one that is given up because a server died is so
            # each time.
            for _ in range(MOVES_ASKED):
                self.begin_to_move(first, to)
                victim.kill()
                victim.start()
                wait_for(lambda: self.where(first, "v")[1] is None, 60)
                if self.where(first, "v")[0] == to.name:
                    break
            self.assertEqual(self.where(first, "v"), (to.name, None))
            self.assertEqual(self.seen(first, place), before, victim.name)

    def test_what_was_open_before_a_restart_is_stale_after_a_move(self):
        """Never other bytes than the file's."""
        first, second, third = self.cluster().members
        place = self.volume_on(second, "v")
        holder = subprocess.Popen(
            first.command("python3", "-c", HOLDER, place, timeout_s=60),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=clean_environment(),
        )  # fmt: skip
        self.addCleanup(lambda: (holder.kill(), holder.communicate()))

        def outcomes():
            holder.stdin.write("\n")
            holder.stdin.flush()
            line = holder.stdout.readline()
            self.assertTrue(line, holder.poll())
            return json.loads(line)

        self.assertEqual(set(outcomes().values()), {"done"})
        second.kill()
        second.start()
        self.assertEqual(set(outcomes().values()), {"done"})
        self.assertEqual(first.operate("volume", "move", "v", "--to", "io3").stdout, "v is on io3\n")
        found = outcomes()
        self.assertEqual(found, {what: "done" if what.startswith("by name") else "ESTALE" for what in found})

    def test_what_is_in_use_stays_and_says_so(self):
        first, second, third = self.cluster().members
        place = self.volume_on(second, "v")
        second.run("touch", f"{place}/file")
        holder = self.program(third, "sh", "-c", f"exec 3<{place}/file; echo open; exec sleep 60", timeout_s=60)
        self.assertEqual(holder.stdout.readline(), "open\n")
        refused = first.operate("volume", "move", "v", "--to", "io3", check=False)
        self.assertEqual(refused.returncode, 1)
        self.assertIn('volume "v" is in use: close the files in it', refused.stderr)
        self.assertEqual(self.where(first, "v"), ("io2", None))
        second.run("touch", f"{place}/another")
        for command, text in [
            (["v", "--to", "io9"], 'the cluster has no server "io9" (allowed: io[1-3])'),
            (["w", "--to", "io3"], 'there is no volume "w"'),
        ]:
            refused = first.operate("volume", "move", *command, check=False)
            self.assertIn(text, refused.stderr)
