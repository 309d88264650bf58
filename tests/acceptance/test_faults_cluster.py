"""A cluster that is worked on and broken at the same time: what was acknowledged is there, and nothing hangs."""

import json
import os
import random
import shutil
import signal
import subprocess
import time
import unittest
from collections import Counter
from pathlib import Path

from checks import VOLUMES, check_files, check_names
from cluster_on_hosts import CLIENTS, PORT, PROXY, SPARE, TIMEOUT_S, Cluster, ClusterMount, Member
from gluster import Gluster, can_have_gluster
from hosts import Network, can_have_hosts
from proxy import Proxy
from service import PREFIX, Case, clean_environment, why_no_mount

# What breaks when, and what programs do.
SEED = int(os.environ.get("ISONOMIA_FAULT_SEED", 13))
# Changes of names of files, and as many of names of volumes, during which a server is killed.
RENAMES = 4
# After a fault is over everybody works again within this time.
RECOVERY_S = 60
CHRONICLE = Path(__file__).parent / "programs" / "chronicle.py"
WORKERS = [("writer", f"w{number}") for number in range(4)] + [
    ("reader", "reader0"), ("reader", "reader1"), ("renamer", "renamer"), ("locker", "locker0"), ("locker", "locker1")
]  # fmt: skip
# These work on a mount of that host, all others with the preload library: of each kind one, and one with striped files.
MOUNTED = {"w1": 2, "reader1": CLIENTS, "locker1": CLIENTS}
# These are on the host of a server, with which they have shared memory: of each kind one, on the host of the server that names
# their files, but for the renamer's, whose volumes are named there. All others reach all servers by TCP.
BESIDE = {"w0": 1, "w2": 3, "reader0": 2, "renamer": 1, "locker0": 3}
# What a program of its own finds: names in each volume, and of files what each block says.
LOOK = """
import json, os, sys
found = {"": sorted(os.listdir(sys.argv[1]))}
for volume in sys.argv[2:]:
    directory = f"{sys.argv[1]}/{volume}"
    files = {}
    for name in os.listdir(directory):
        with open(f"{directory}/{name}", "rb") as file:
            data = file.read()
        blocks = []
        for at in range(0, len(data), 4096) if volume.startswith("w") else []:
            block, line = data[at : at + 4096], data[at : at + 64]
            blocks.append(line.decode().split() if block == line * 64 else ["torn", repr(line)])
        files[name] = blocks
    found[volume] = files
print(json.dumps(found))
"""


class Worker:
    """A program that works, and what it wrote down."""

    def __init__(self, cluster, role, name, mount=None):
        self.cluster, self.role, self.name, self.mount = cluster, role, name, mount
        self.path = cluster.directory / f"{name}.chronicle"
        self.life = 0
        self.process = None

    def start(self):
        self.life += 1
        prefix = str(self.mount.place) if self.mount else PREFIX
        program = ["python3", str(CHRONICLE), self.role, self.name, str(self.life), str(SEED), prefix, str(self.path)]
        with open(self.path.with_suffix(".errors"), "ab") as errors:
            self.process = subprocess.Popen(
                program if self.mount else self.cluster.program(*program, host=BESIDE.get(self.name, CLIENTS)),
                stdin=subprocess.DEVNULL, stdout=errors, stderr=errors, env=clean_environment(),
            )  # fmt: skip
        return self

    def kill(self):
        self.process.kill()
        self.process.wait()

    def entries(self):
        if not self.path.exists():
            return []
        # The last line of one that was killed may be half of one.
        lines = self.path.read_bytes().split(b"\n")[:-1]
        return [json.loads(line) for line in lines]

    def done(self):
        if self.process.poll() is not None:
            errors = self.path.with_suffix(".errors").read_text()
            raise AssertionError(f"{self.name} ended with {self.process.returncode}:\n{errors}")
        return sum("did" in entry for entry in self.entries())

    def begun_rename(self, below):
        """The line that its log ends with, as soon as that says that it begins to rename something below this."""
        deadline = time.monotonic() + RECOVERY_S
        with open(self.path, "rb") as log:
            log.seek(0, os.SEEK_END)
            part = b""
            while time.monotonic() < deadline:
                # Of a line that is being written a part may be there already.
                *lines, part = (part + log.read()).split(b"\n")
                if lines and not part and lines[-1].startswith(b'{"begins": "rename"') and below.encode() in lines[-1]:
                    return lines[-1] + b"\n"
        raise AssertionError(f"nothing below {below} is renamed")


class Faults(Case):
    HOSTS = False
    # See `Cluster`.
    SOCKET = "socket"

    def setUp(self):
        super().setUp()
        network = None
        if can_have_hosts():
            network = Network(PROXY)
            self.addCleanup(network.remove)
        elif self.HOSTS:
            self.skipTest("network namespaces need root and ip")
        self.random = random.Random(SEED)
        self.network = network
        self.cluster = Cluster(network, socket_name=self.SOCKET)
        self.addCleanup(self.cluster.remove)
        self.prepare()
        self.cluster.start()
        self.members = self.cluster.members
        mounts = {}
        for host in [] if why_no_mount() else sorted({*MOUNTED.values()}):
            mounts[host] = ClusterMount(self.cluster, host)
            self.addCleanup(mounts[host].remove)
            mounts[host].start()
        self.workers = [Worker(self.cluster, role, name, mounts.get(MOUNTED.get(name))).start() for role, name in WORKERS]
        self.addCleanup(lambda: [worker.kill() for worker in self.workers])
        self.all_work("at first")

    def prepare(self):
        pass

    def all_work(self, after, count=4):
        """Waits until every program has done more."""
        before = {worker: worker.done() for worker in self.workers}
        deadline = time.monotonic() + RECOVERY_S
        while late := [worker for worker in self.workers if worker.done() < before[worker] + count]:
            if time.monotonic() > deadline:
                worker = late[0]
                logs = "\n".join(f"{member.name}: {member.log(8)}" for member in self.members.values())
                self.fail(f"seed {SEED}: {after}: {worker.name} does not go on: {worker.entries()[-4:]}\n{logs}")
            time.sleep(0.1)

    def a_while(self, least=0.2, most=1.2):
        time.sleep(self.random.uniform(least, most))

    def fill(self, number):
        """Fills the file system of a server's directory; the file that does it."""
        filler = self.cluster.directory / f"io{number}" / "filler"
        with open(filler, "wb", buffering=0) as file:
            for length in [1 << 20, 4096]:
                try:
                    while file.write(bytes(length)):
                        pass
                except OSError:
                    pass
        return filler

    def restart(self, *numbers):
        for number in numbers:
            self.members[number].start()
        for number in numbers:
            self.members[number].ready()

    def check(self):
        """What is there is what was acknowledged."""
        for worker in self.workers:
            worker.kill()
        volumes = [*VOLUMES]
        looked = subprocess.run(
            self.cluster.program("python3", "-c", LOOK, PREFIX, *volumes),
            capture_output=True, text=True, timeout=120, env=clean_environment(),
        )  # fmt: skip
        self.assertEqual(looked.returncode, 0, looked.stderr)
        found = json.loads(looked.stdout)
        wrong = []
        counted = Counter()
        for worker in self.workers:
            entries = worker.entries()
            wrong += [f"{worker.name}: {entry}" for entry in entries if "wrong" in entry]
            # Some take two or three requests, each of which may take the time-out.
            slow = [entry for entry in entries if entry.get("took", 0) > 3 * TIMEOUT_S + 5]
            wrong += [f"{worker.name} waited too long: {entry}" for entry in slow]
            if worker.role == "writer":
                wrong += check_files(worker.name, entries, found[worker.name])
            if worker.role == "renamer":
                wrong += check_names(entries, found)
            if worker.role == "locker":
                counted.update(entry["counted"] for entry in entries if "counted" in entry)
        wrong += [f"{times} counted {count}" for count, times in counted.items() if times > 1]
        done = sum("did" in entry for worker in self.workers for entry in worker.entries())
        failed = Counter(
            (entry["failed"], os.strerror(entry["errno"]))
            for worker in self.workers
            for entry in worker.entries()
            if "failed" in entry
        )
        print(f"\n    {done} operations, failed: {dict(failed)}", flush=True)
        self.assertEqual(wrong[:10], [], f"{len(wrong)} in all, seed {SEED}")


class FaultsOfProcesses(Faults):
    def test_servers_and_clients_that_are_killed_or_stand_still(self):
        for number in self.members:
            self.a_while()
            self.members[number].kill()
            self.a_while()
            self.restart(number)
            self.all_work(f"io{number} was killed")
        self.a_while()
        for number in self.members:
            self.members[number].kill()
        self.restart(*self.members)
        self.all_work("all servers were killed")
        # Shorter than the right to its directory lasts, and longer.
        for number, seconds in [(3, 3), (2, 10)]:
            self.members[number].signal(signal.SIGSTOP)
            time.sleep(seconds)
            self.members[number].signal(signal.SIGCONT)
            self.all_work(f"io{number} stood still for {seconds} s")
        for worker in self.workers:
            self.a_while(0, 0.2)
            worker.kill()
            worker.start()
        self.all_work("all programs were killed")
        # In pairs.
        self.members[1].signal(signal.SIGSTOP)
        self.members[2].kill()
        self.a_while()
        self.restart(2)
        self.a_while()
        self.members[1].signal(signal.SIGCONT)
        self.all_work("the root server stood still while io2 was killed")
        self.members[4].kill()
        self.members[1].kill()
        self.a_while()
        self.restart(1)
        self.a_while()
        self.restart(4)
        self.all_work("the root server and io4 were killed")
        self.check()

    def test_the_server_of_a_name_is_killed_while_that_is_changed(self):
        """Of a file's name the server of its volume, of a volume's name the root server, as soon as the log says that it begins."""
        renamer = next(worker for worker in self.workers if worker.role == "renamer")
        caught = 0
        # Longer if none of them was under way.
        for tried, (number, names) in enumerate([(VOLUMES["r"], f"{PREFIX}/r/"), (1, f"{PREFIX}/v")] * 4 * RENAMES):
            if tried >= 2 * RENAMES and caught:
                break
            line = renamer.begun_rename(names)
            self.members[number].signal(signal.SIGKILL)
            self.members[number].kill()
            self.restart(number)
            self.all_work(f"io{number} was killed during a rename", 2)
            after = renamer.path.read_bytes().split(line)[1]
            # It was answered before, or not; a file's is not asked again, because it may have happened.
            caught += not after.startswith(b'{"did": "rename"')
        print(f"\n    {caught} changes of names were under way", end="")
        self.assertGreater(caught, 0)
        self.check()

    def test_a_server_whose_directory_is_empty_is_refused(self):
        member = self.members[3]
        member.kill()
        kept = member.directory.with_suffix(".kept")
        member.directory.rename(kept)
        member.start()
        self.assertEqual(member.process.wait(30), 3, member.log())
        self.assertIn("of which its directory knows nothing", member.log())
        member.process.stdout.close()
        shutil.rmtree(member.directory)
        kept.rename(member.directory)
        self.restart(3)
        self.all_work("io3 has its directory again")
        self.check()


@unittest.skipUnless(os.geteuid() == 0, "a small file system takes root")
class FaultsOfStorage(Faults):
    def prepare(self):
        place = self.cluster.directory / "io4"
        place.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=96m", "tmpfs", place], check=True)
        self.addCleanup(subprocess.run, ["umount", "--lazy", place])

    def test_a_full_disk(self):
        for _ in range(2):
            filler = self.fill(4)
            self.a_while(1, 2)
            self.members[4].kill()
            filler.unlink()
            self.restart(4)
            self.all_work("the disk of io4 was full")
        self.check()


@unittest.skipUnless(os.geteuid() == 0, "a small file system takes root")
class FaultsOfMetadata(Faults):
    """What names files has a file system of its own, on the root server and on another one."""

    SMALL = (1, 4)
    # No server begins with less.
    SIZE = 528 << 20

    def prepare(self):
        text = self.cluster.file.read_text()
        for number in self.SMALL:
            place = self.cluster.directory / f"io{number}"
            place.mkdir()
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={self.SIZE}", "tmpfs", place], check=True)
            self.addCleanup(subprocess.run, ["umount", "--lazy", place])
            begin = text.index(f'name = "io{number}"')
            elsewhere = f'targets = [{{ dir = "{self.cluster.directory}/target-of-io{number}" }}]'
            text = text[:begin] + text[begin:].replace("targets = 1", elsewhere, 1)
        self.cluster.file.write_text(text)

    def test_a_full_metadata_directory(self):
        for number in self.SMALL:
            filler = self.fill(number)
            self.a_while(2, 3)
            filler.unlink()
            self.all_work(f"metadata of io{number} had no room")
            filler = self.fill(number)
            self.a_while()
            self.members[number].kill()
            filler.unlink()
            self.restart(number)
            self.all_work(f"io{number} was killed without room")
        self.check()


class FaultsOfConnections(Faults):
    """A proxy stands before each server: for programs, and for the other servers. Only who is on its host has another way to it."""

    HOSTS = True
    # By the proxy's addresses all are on one host, where no two have the same.
    SOCKET = "io{number}"

    def prepare(self):
        # A server listens on those of its addresses that are its host's.
        text = self.cluster.file.read_text()
        forwarded = {}
        for number in self.cluster.members:
            own, port = self.cluster.addresses[number][0], PORT + number
            through = f"tcp:{self.network.address(PROXY)}:{port}"
            text = text.replace(f'"{own}"', f'"{through}", "{own}"', 1)
            self.cluster.addresses[number] = [through]
            forwarded[port] = own.removeprefix("tcp:")
        self.cluster.file.write_text(text)
        for host in range(1, PROXY):
            for number in self.cluster.members:
                if host != number:
                    self.network.forbid(host, number)
        self.proxy = Proxy(self.network.within(PROXY), SEED, forwarded)
        self.addCleanup(self.proxy.stop)

    def set(self, number, mode):
        return self.proxy.set(PORT + number, mode)

    def fault(self, modes, seconds):
        """Sets what becomes of connections to servers for a while."""
        for number, mode in modes.items():
            self.set(number, mode)
        time.sleep(seconds)
        for number in modes:
            self.set(number, "pass")

    def test_frames_that_are_late_cut_off_or_never_come(self):
        for mode in ["delay", "truncate", "reset", "stall"]:
            for number in self.members:
                self.fault({number: mode}, 1.5)
                self.all_work(f"connections to io{number}: {mode}", 2)
        # All at once, and with a server that is killed.
        for mode in ["truncate", "reset"]:
            self.fault(dict.fromkeys(self.members, mode), 3)
            self.all_work(f"connections to all: {mode}")
        for number, mode in [(2, "truncate"), (1, "reset")]:
            self.set(number, mode)
            self.members[3].kill()
            self.a_while()
            self.restart(3)
            self.a_while()
            self.set(number, "pass")
            self.all_work(f"connections to io{number}: {mode}, and io3 was killed")
        broken = self.set(1, "pass")
        print(f"\n    {broken} connections were broken", end="")
        self.assertGreater(broken, 20)
        self.check()


class FaultsOfTheNetwork(Faults):
    HOSTS = True

    def test_partitions(self):
        for number in self.members:
            self.network.cut_off(number)
            time.sleep(3)
            self.network.connect(number)
            self.all_work(f"io{number} was cut off")
        for number, towards in [(1, 2), (2, 1), (3, CLIENTS), (CLIENTS, 4)]:
            self.network.mute(number, towards)
            time.sleep(4)
            self.network.unmute(number, towards)
            self.all_work(f"host {number} was mute towards {towards}")
        # In pairs.
        self.network.mute(1, 3)
        self.members[4].kill()
        time.sleep(2)
        self.restart(4)
        self.network.unmute(1, 3)
        self.all_work("io1 was mute and io4 killed")
        self.check()

    def test_another_host_takes_over(self):
        old = self.members[1]
        old.signal(signal.SIGSTOP)
        new = Member(self.cluster, 1)
        new.host = SPARE
        self.cluster.others.append(old)
        # Not by mistake.
        new.start()
        self.assertEqual(new.process.wait(30), 1)
        self.assertIn("is in use by another server", new.log())
        new.process.stdout.close()
        self.members[1] = new.start("--take-over").ready()
        self.all_work("another host has the directory of io1")
        old.signal(signal.SIGCONT)
        self.assertEqual(old.process.wait(30), 3, old.log())
        self.assertIn("another process has taken over: this one ends", old.log())
        self.all_work("the old process went on, and ended")
        # And back again, from a host that is cut off from everybody.
        self.network.cut_off(SPARE)
        back = Member(self.cluster, 1)
        self.cluster.others.append(new)
        self.members[1] = back.start("--take-over").ready()
        self.all_work("the first host has it again")
        self.network.connect(SPARE)
        self.assertEqual(new.process.wait(30), 3, new.log())
        self.all_work("the one that was cut off ended")
        self.check()


@unittest.skipUnless(can_have_gluster(), "GlusterFS is not installed, or this is not root")
class TakeOverOnGluster(Faults):
    HOSTS = True

    def prepare(self):
        self.gluster = Gluster(self.cluster.directory / "gluster")
        self.addCleanup(self.gluster.remove)
        self.cluster.members[1].more = ["--dir", str(self.gluster.mounts[0] / "io1")]

    def test_another_host_takes_over_and_a_brick_is_lost(self):
        old = self.members[1]
        old.signal(signal.SIGSTOP)
        new = Member(self.cluster, 1)
        new.host, new.more = SPARE, ["--dir", str(self.gluster.mounts[1] / "io1")]
        self.cluster.others.append(old)
        self.members[1] = new.start("--take-over").ready()
        self.all_work("another host has the directory of io1")
        self.gluster.bricks[0].kill()
        self.all_work("a brick is lost")
        old.signal(signal.SIGCONT)
        self.assertEqual(old.process.wait(60), 3, old.log())
        self.assertIn("another process has taken over: this one ends", old.log())
        self.all_work("the old process went on, and ended")
        self.check()
