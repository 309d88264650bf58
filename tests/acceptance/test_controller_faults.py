"""What is decided for all servers at once, while etcd and controllers are killed, stand still, or have odd ledgers."""

import base64
import json
import re
import signal
import socket
import struct
import subprocess
import tempfile
import textwrap
import time
import urllib.request

import test_cluster
import test_controller
from hosts import Network, can_have_hosts
from service import PREFIX, Case, clean_environment, free_port, isonomia, wait_for
from test_controller import DECIDE_S, SERVERS, TAKEN_OVER_S, WRITES, Etcd, controllers

ETCDS = 3
# Of an allocation that nobody renews: one and a half times two intervals, and a second.
VALID_S = 3 * DECIDE_S + 1
# Before who is cut off is asked in vain: six intervals.
ASKED_S = 6 * DECIDE_S
LEASE_S = 20
PORT = 7411
# Phases of I/O, with a pause after each.
ALTERNATE = textwrap.dedent("""
    import os, sys, time
    file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o644)
    while True:
        for _ in range(16):
            os.pwrite(file, bytes(64 << 10), 0)
        time.sleep(0.2)
""")
GIFT = "gift{throttle=0.5,window=1000000000,system-window=1000000000}"
ACCOUNTS = 300


class Member(Etcd):
    """One of several etcds."""

    def __init__(self, name, ports, peers):
        self.directory = tempfile.TemporaryDirectory(prefix="isonomia-etcd-")
        self.port = ports[name]
        client, peer = f"http://127.0.0.1:{self.port}", f"http://127.0.0.1:{peers[name]}"
        initial = ",".join(f"{other}=http://127.0.0.1:{port}" for other, port in peers.items())
        self.command = ["etcd", "--name", name, "--data-dir", f"{self.directory.name}/data"]
        self.command += ["--listen-client-urls", client, "--advertise-client-urls", client, "--listen-peer-urls", peer]
        self.command += ["--initial-advertise-peer-urls", peer, "--initial-cluster", initial]
        self.begin()

    def begin(self):
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.process = subprocess.Popen(self.command, **quiet)

    def start(self):
        self.begin()
        wait_for(self.is_healthy, 60)

    def is_leader(self):
        status = call(self.port, "maintenance/status", {})
        return status["leader"] == status["header"]["member_id"]


def call(port, what, body):
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v3/{what}", json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=5) as answer:
        return json.load(answer)


def text(value):
    return base64.b64encode(value).decode()


def put(port, key, value):
    call(port, "kv/put", {"key": text(b"/isonomia/acceptance/ledger/" + key), "value": text(value)})


def keys(port):
    prefix = b"/isonomia/acceptance/ledger/"
    found = call(port, "kv/range", {"key": text(prefix), "range_end": text(prefix[:-1] + b"0"), "keys_only": True})
    return [base64.b64decode(pair["key"]).removeprefix(prefix) for pair in found.get("kvs", [])]


def varint(number):
    """A number as postcard writes it."""
    written = bytearray()
    while number > 127:
        written.append(number & 127 | 128)
        number >>= 7
    return bytes([*written, number])


def blob(value):
    return varint(len(value)) + value


def account(coupons):
    """An account that has had so many coupons, and all of them back."""
    record = varint(coupons) + varint(coupons) + bytes(5)
    return b"\x01" + record + blob(b"ada") + blob(b"astro")


class ControllerFaults(test_controller.Controllers):
    # Those of the class that this one builds on run there.
    test_another_server_takes_over = None
    test_no_coupon_is_lost_when_the_server_is_killed = None
    test_a_later_run_redeems_what_an_earlier_one_is_owed = None
    test_gift_is_tried_beside_another_policy = None
    test_a_server_alone_says_that_nobody_decides = None

    def etcd(self):
        self.needs("etcd")
        etcd = Etcd()
        self.addCleanup(etcd.remove)
        return etcd

    def coordinated(self, endpoints):
        return f'coordination = "etcd://{endpoints}"\ndecide = "{DECIDE_S}s"'

    def deciding(self, members, timeout_s=60):
        """Who decides, by name, when exactly one server does, all listen to it, and who has jobs follows it."""

        def one():
            told = controllers(members)
            here = [name for name, found in told.items() if found["is_here"]]
            if len(here) != 1 or any(found.get("server") != here[0] for found in told.values()):
                return None
            return here[0] if any(found["version"] > 0 for found in told.values()) else None

        return wait_for(one, timeout_s)

    def served_ns(self, members):
        return sum(job["service_ns_total"] for member in members for job in member.status()["jobs"])

    def goes_on(self, members):
        """Programs are served all the time: none has waited for as long as it takes until what nobody renews ends."""
        before = self.served_ns(members)
        wait_for(lambda: self.served_ns(members) > before + 50_000_000, 20)
        gaps = self.longest_gaps_s()
        print(f"longest waits so far: {gaps}", flush=True)
        self.assertTrue(gaps)
        self.assertLess(max(gaps.values()), VALID_S, gaps)

    def test_etcds_leader_is_killed_and_an_endpoint_never_answers(self):
        self.needs("etcd")
        names = [f"etcd{number}" for number in range(ETCDS)]
        ports, peers = ({name: free_port() for name in names} for _ in range(2))
        etcds = [Member(name, ports, peers) for name in names]
        for etcd in etcds:
            self.addCleanup(etcd.remove)
        wait_for(lambda: all(etcd.is_healthy() for etcd in etcds), 60)
        # In front of them is one that takes connections and says nothing.
        with socket.create_server(("127.0.0.1", 0), backlog=64) as silent:
            endpoints = [silent.getsockname()[1], *ports.values()]
            lines = self.coordinated(",".join(f"127.0.0.1:{port}" for port in endpoints))
            cluster = self.cluster(SERVERS, lines, GIFT)
            self.load(cluster.members[0], {"wide": 2 * SERVERS, "narrow": 1})
            self.deciding(cluster.members)
            leader = wait_for(lambda: next((etcd for etcd in etcds if etcd.is_leader()), None), 30)
            term = max(found["term"] for found in controllers(cluster.members).values())
            before = controllers(cluster.members)
            leader.kill()
            killed_at = time.monotonic()
            self.goes_on(cluster.members)
            decided = {name: found["decisions_total"] for name, found in before.items()}

            def goes_on_deciding():
                told = controllers(cluster.members)
                here = [name for name, found in told.items() if found["is_here"]]
                if len(here) != 1:
                    return None
                found = told[here[0]]
                return found["term"] > term or found["decisions_total"] > decided[here[0]] + 1

            wait_for(goes_on_deciding, 60)
            took_s = time.monotonic() - killed_at
            print(f"decided again {took_s:.1f} s after etcd's leader was killed", flush=True)
            self.assertLess(took_s, 2 * TAKEN_OVER_S)
            self.goes_on(cluster.members)
            self.deciding(cluster.members)

    def test_a_controller_that_stands_still_is_replaced_and_not_listened_to_again(self):
        etcd = self.etcd()
        cluster = self.cluster(SERVERS, self.coordinated(f"127.0.0.1:{etcd.port}"), GIFT)
        old = next(member for member in cluster.members if member.name == self.wait_for_controller(cluster))
        others = [member for member in cluster.members if member is not old]
        # Volumes of their own, so that nobody waits for the one that stands still.
        for number, member in enumerate(others):
            others[0].operate("volume", "create", f"own{number}", "--on", member.name)
        for number, member in enumerate(others):
            for job in "ab":
                self.write(others[0], f"{job}", f"own{number}/{job}")
        self.deciding(cluster.members)
        term = old.status()["cluster"]["controller"]["term"]
        old.process.send_signal(signal.SIGSTOP)
        self.addCleanup(old.process.send_signal, signal.SIGCONT)
        stopped_at = time.monotonic()
        self.goes_on(others)
        new = self.deciding(others)
        took_s = time.monotonic() - stopped_at
        print(f"taken over from one that stands still after {took_s:.1f} s", flush=True)
        self.assertLess(took_s, 2 * TAKEN_OVER_S + DECIDE_S)
        old.process.send_signal(signal.SIGCONT)
        # It has no jobs, and is asked once a minute.
        self.assertEqual(self.deciding(cluster.members, 120), new)
        told = controllers(cluster.members)
        self.assertTrue(all(found["term"] > term for found in told.values()), told)
        self.goes_on(others)

    def wait_for_controller(self, cluster):
        here = lambda: [name for name, found in controllers(cluster.members).items() if found["is_here"]]  # noqa: E731
        return wait_for(here, 60)[0]

    def write(self, member, job, path):
        log = self.gap_log(path)
        self.program(member, "python3", "-c", WRITES, f"{PREFIX}/{path}", "64", log, job=job, timeout_s=300)

    def test_a_server_that_hears_nothing_of_the_controller_shares_fairly(self):
        # Without etcd: nobody takes over.
        lines = f'controller = "io1"\ndecide = "{DECIDE_S}s"'
        cluster = self.cluster(2, lines, GIFT)
        first, second = cluster.members
        second.operate("volume", "create", "own", "--on", second.name)
        for job in "ab":
            self.write(second, job, f"own/{job}")
        self.deciding(cluster.members)
        first.process.send_signal(signal.SIGSTOP)
        self.addCleanup(first.process.send_signal, signal.SIGCONT)
        self.goes_on([second])
        wait_for(lambda: second.status()["cluster"]["controller"]["version"] == 0, VALID_S + 20)
        self.goes_on([second])
        first.process.send_signal(signal.SIGCONT)
        self.deciding(cluster.members)

    def test_who_grants_phases_is_killed_while_two_applications_alternate(self):
        etcd = self.etcd()
        coordinated = self.coordinated(f"127.0.0.1:{etcd.port}")
        cluster = self.cluster(SERVERS, coordinated, f"exclusive{{lease={LEASE_S}s,gap=50ms}}")

        def grants(members):
            nodes = [member.status()["exclusive"] for member in members]
            names = {node and node["coordinator"] for node in nodes}
            return names.pop() if len(names) == 1 and not any(node["is_open"] for node in nodes) else None

        name = wait_for(lambda: grants(cluster.members), 60)
        old = next(member for member in cluster.members if member.name == name)
        others = [member for member in cluster.members if member is not old]
        # A volume of a server that is not killed, so that nobody waits for the one that is.
        others[0].operate("volume", "create", "own", "--on", others[0].name)
        for job in "ab":
            path = f"{PREFIX}/own/{job}"
            self.program(others[0], "python3", "-c", ALTERNATE, path, job=job, timeout_s=300)

        def phases():
            status = others[0].status()
            found = {job["job"]: job["exclusive"] for job in status["jobs"] if job["job"] in ("a", "b")}
            if not status["exclusive"]["is_open"]:
                self.assertLessEqual(sum(of["state"] == "holding" for of in found.values()), 1, found)
            return {name: of["phases_total"] for name, of in found.items()}

        def alternate():
            before = wait_for(lambda: (found := phases()) and len(found) == 2 and found, 60)
            wait_for(lambda: all(phases()[job] >= before[job] + 3 for job in before), 60)

        alternate()
        old.kill()
        killed_at = time.monotonic()
        new = wait_for(lambda: (name := grants(others)) and name != old.name and name, 60)
        took_s = time.monotonic() - killed_at
        print(f"{new} grants phases {took_s:.1f} s after {old.name} was killed", flush=True)
        self.assertLess(took_s, 2 * TAKEN_OVER_S)
        alternate()
        self.assertEqual(0, others[0].status()["exclusive"]["ended_by_lease_total"])
        for job in "ab":
            self.assertLess(others[0].job(job)["exclusive"]["waited_max_ns"], LEASE_S * 1e9)
        # It comes back and grants nothing.
        old.start()
        self.assertEqual(new, wait_for(lambda: grants(cluster.members), 60))
        alternate()

    def test_a_ledger_that_nobody_can_read_is_never_begun_anew(self):
        etcd = self.etcd()
        put(etcd.port, b"COUPONS/s", b"\x09")
        cluster = self.cluster(SERVERS, self.coordinated(f"127.0.0.1:{etcd.port}"), GIFT)
        self.load(cluster.members[0], {"wide": 2 * SERVERS, "narrow": 1})
        said = "record COUPONS/s of the ledger has format Some(9)"
        # Who finds it so gives the lease up, and another one tries.
        wait_for(lambda: sum(said in member.log(10_000) for member in cluster.members) >= 2, 60)
        self.assertEqual(keys(etcd.port), [b"COUPONS/s"])
        self.assertIn(said, cluster.members[0].operate("coupons", check=False).stderr)
        self.goes_on(cluster.members)
        call(etcd.port, "kv/deleterange", {"key": text(b"/isonomia/acceptance/ledger/COUPONS/s")})
        self.deciding(cluster.members, 120)

    def test_a_decision_whose_writer_was_killed_is_made_or_not(self):
        etcd = self.etcd()
        names = [f"COUPONS/a/user=ada job={number:04}".encode() for number in range(ACCOUNTS)]
        changes = b"".join(blob(name) + b"\x01" + blob(account(5)) for name in names)
        journal = b"\x01" + varint(ACCOUNTS) + changes
        # All of it is written, and a few of the changes are made.
        put(etcd.port, b"COUPONS/j/" + struct.pack(">I", 0), journal)
        put(etcd.port, b"COUPONS/J", b"\x01\x01")
        for name in names[:7]:
            put(etcd.port, name, account(5))
        cluster = self.cluster(2, self.coordinated(f"127.0.0.1:{etcd.port}"), GIFT)
        self.wait_for_controller(cluster)
        ledger = self.ledger(cluster.members[0])
        self.assertEqual(sum(account["issued"] == 5 for account in ledger["accounts"]), ACCOUNTS)
        self.assertEqual([key for key in keys(etcd.port) if key.startswith((b"COUPONS/j", b"COUPONS/J"))], [])
        # Without the mark it was never made.
        for member in cluster.members:
            member.kill()
        put(etcd.port, b"COUPONS/j/" + struct.pack(">I", 0), b"half of it")
        for member in cluster.members:
            member.start()
        self.wait_for_controller(cluster)
        self.assertEqual(len(self.ledger(cluster.members[0])["accounts"]), ACCOUNTS)
        self.assertEqual([key for key in keys(etcd.port) if key.startswith((b"COUPONS/j", b"COUPONS/J"))], [])

    def test_the_ledger_moves_with_the_role(self):
        cluster = self.cluster(SERVERS, f'controller = "io1"\ndecide = "{DECIDE_S}s"', GIFT)
        first, second, third = cluster.members
        self.load(first, {"wide": 2 * SERVERS, "narrow": 1})

        def issued(member):
            return {found["account"]: found["issued"] for found in self.ledger(member)["accounts"] if found["issued"]}

        before = wait_for(lambda: issued(first), 60)

        def name(server, epoch):
            told = cluster.file.read_text()
            told = told.replace(f"epoch = {epoch - 1}\n", f"epoch = {epoch}\n")
            cluster.file.write_text(told.replace(f'controller = "io{server - 1}"', f'controller = "io{server}"'))
            command = [isonomia(), "cluster", "reload", str(cluster.file), "--key-file", str(cluster.key_file)]
            return subprocess.run(command, capture_output=True, text=True, timeout=60, env=clean_environment())

        done = name(2, 2)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        wait_for(lambda: second.status()["cluster"]["controller"]["is_here"], 60)
        after = issued(second)
        for account, coupons in before.items():
            self.assertGreaterEqual(after.get(account, 0), coupons, account)
        # The one that has it is away: the next one does not begin without it.
        second.kill()
        name(3, 3)
        wait_for(lambda: "server io2 may have a later ledger and does not tell" in third.log(10_000), 60)
        self.assertFalse(third.status()["cluster"]["controller"]["is_here"])
        second.start()
        wait_for(lambda: third.status()["cluster"]["controller"]["is_here"], 60)
        last = issued(third)
        for account, coupons in after.items():
            self.assertGreaterEqual(last.get(account, 0), coupons, account)


class OnHost(test_cluster.Member):
    """A server on a host of its own, which is used and asked there."""

    def start(self):
        command = [*self.within, isonomia(), "serve", "--cluster", str(self.cluster.file), "--name", self.name]
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(
                [*command, "--key-file", str(self.key_file), "--trust-clients"],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, env=clean_environment(),
            )  # fmt: skip
        return self

    def command(self, *program, **options):
        return [*self.within, *super().command(*program, **options)]

    def operate(self, *arguments, check=True):
        command = [*self.within, isonomia(), *arguments, *self.reach()]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=clean_environment())
        if check and done.returncode:
            raise AssertionError(f"{arguments} ended with {done.returncode}: {done.stderr}\n{self.log()}")
        return done


class CutNetwork(Case):
    """A server that does not reach the controller, or is not reached by it."""

    # Times and shares are looked at.
    alone = True

    # As those of the other class have them.
    deciding = ControllerFaults.deciding
    served_ns = ControllerFaults.served_ns
    goes_on = ControllerFaults.goes_on
    gap_log = ControllerFaults.gap_log
    longest_gaps_s = ControllerFaults.longest_gaps_s

    def setUp(self):
        super().setUp()
        if not can_have_hosts():
            self.skipTest("network namespaces need root and ip")
        self.network = Network(SERVERS)
        self.addCleanup(self.network.remove)
        self.cluster = test_controller.Decided(SERVERS, f'controller = "io1"\ndecide = "{DECIDE_S}s"')
        self.addCleanup(self.cluster.remove)
        text = self.cluster.file.read_text()
        for number in range(1, SERVERS + 1):
            listen = f'listen = ["tcp:{self.network.address(number)}:{PORT}"]'
            text = re.sub(rf'listen = \["unix:[^"]*/io{number}.sock", "[^"]*"\]', listen, text)
        self.cluster.file.write_text(text)
        self.members = []
        for number in range(1, SERVERS + 1):
            member = OnHost(self.cluster, f"io{number}")
            member.within = self.network.within(number)
            member.address = f"tcp:{self.network.address(number)}:{PORT}"
            self.members.append(member)
        self.cluster.members = self.members
        for member in self.members:
            member.start()
        for member in self.members:
            self.assertTrue(member.process.stdout.readline(), member.log())

    def shares_fairly(self, member):
        """Whether its two jobs get the same for two seconds; on a busy machine one of them may not have asked for it."""
        before = {job["job"]: job["service_ns_total"] for job in member.status()["jobs"]}
        time.sleep(2)
        after = {job["job"]: job["service_ns_total"] for job in member.status()["jobs"]}
        had = [after[f"{job}-{member.name}"] - before[f"{job}-{member.name}"] for job in "ab"]
        return min(had) > 0.8 * max(had)

    def test_a_server_that_is_cut_off_from_the_controller_shares_fairly_until_it_is_back(self):
        first, second, third = self.members
        first.operate("policy", "set", GIFT)
        for member in (second, third):
            first.operate("volume", "create", f"own-{member.name}", "--on", member.name)
            for job in "ab":
                path = f"{PREFIX}/own-{member.name}/{job}"
                name = f"{job}-{member.name}"
                self.program(member, "python3", "-c", WRITES, path, "64", self.gap_log(name), job=name, timeout_s=300)
        self.deciding(self.members)
        follows = lambda member: member.status()["cluster"]["controller"]["version"] > 0  # noqa: E731
        wait_for(lambda: follows(second) and follows(third), 60)
        network = self.network
        for what, cut, mend, valid_s in [
            ("both ways", lambda: network.cut_off(2), lambda: network.connect(2), VALID_S),
            ("from the controller", lambda: network.mute(1, 2), lambda: network.unmute(1, 2), VALID_S),
            ("to the controller", lambda: network.mute(2, 1), lambda: network.unmute(2, 1), VALID_S + ASKED_S),
        ]:
            with self.subTest(what):
                cut()
                begun = time.monotonic()
                self.goes_on([second])
                # What was under way when the network was cut may still have come.
                wait_for(lambda: not follows(second), valid_s + 2 * DECIDE_S)
                print(f"cut {what}: shares fairly after {time.monotonic() - begun:.1f} s", flush=True)
                self.goes_on([second])
                wait_for(lambda: self.shares_fairly(second), 30)
                # Two of three are too few until the third one counts as gone: then the others are decided for again.
                wait_for(lambda: follows(third), ASKED_S + 6 * DECIDE_S)
                self.goes_on([second, third])
                mend()
                wait_for(lambda: follows(second) and follows(third), 120)
                self.goes_on([second, third])
