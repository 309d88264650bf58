"""What is decided for all servers at once, while those who decide are killed."""

import json
import pathlib
import random
import subprocess
import tempfile
import textwrap
import time
import urllib.request

import test_cluster
from service import PREFIX, Case, free_port, wait_for

SERVERS = 3
# Of each target: so slow that a busy machine is fast enough beside it.
BANDWIDTH = "8MiB/s"
DECIDE_S = 2
# etcd gives up a lease of two seconds after two to four, and servers ask it four times a second.
TAKEN_OVER_S = 2 * DECIDE_S + 4
KILLS = 6
ATTEMPTS = 3
# Numbers of the first targets of two servers.
FIRST, SECOND = 0, 16
# The longest time from one write to the next, and when the last one was done, go to a log of the program's own.
WRITES = textwrap.dedent("""
    import os, sys, time
    file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o644)
    longest, last, logged = 0, time.monotonic(), 0
    while True:
        os.pwrite(file, bytes(int(sys.argv[2]) << 10), 0)
        now = time.monotonic()
        is_longer = now - last > longest
        longest, last = max(longest, now - last), now
        if len(sys.argv) > 3 and (is_longer or now > logged + 0.2):
            logged = now
            with open(sys.argv[3] + ".new", "w") as log:
                log.write(f"{longest} {last}")
            os.replace(sys.argv[3] + ".new", sys.argv[3])
""")


class Etcd:
    """One etcd, in a directory of its own."""

    def __init__(self):
        self.directory = tempfile.TemporaryDirectory(prefix="isonomia-etcd-")
        self.port, peers = free_port(), free_port()
        client, peer = f"http://127.0.0.1:{self.port}", f"http://127.0.0.1:{peers}"
        self.command = ["etcd", "--data-dir", f"{self.directory.name}/data", "--listen-client-urls", client]
        self.command += ["--advertise-client-urls", client, "--listen-peer-urls", peer]
        self.command += ["--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}"]
        self.start()

    def start(self):
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.process = subprocess.Popen(self.command, **quiet)
        wait_for(self.is_healthy, 30)

    def is_healthy(self):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=1) as answer:
                return json.load(answer)["health"] == "true"
        except OSError:
            return False

    def kill(self):
        self.process.kill()
        self.process.wait()

    def remove(self):
        self.kill()
        self.directory.cleanup()


class Decided(test_cluster.Cluster):
    def __init__(self, servers, lines):
        super().__init__(servers, below="/dev/shm")
        text = self.file.read_text().replace("epoch = 1\n", f"epoch = 1\n{lines}\n")
        target = f'{{ bandwidth = "{BANDWIDTH}", per_op = "10us" }}'
        self.file.write_text(text.replace("targets = 2", f"targets = [{target}, {target}]"))
        for member in self.members:
            member.more = ["--trust-clients"]


def controllers(members):
    """What each server that lives says of the controller, by name."""
    alive = [member for member in members if member.process and member.process.poll() is None]
    return {member.name: member.status()["cluster"]["controller"] for member in alive}


class Controllers(Case):
    # Times and shares are looked at.
    alone = True

    def cluster(self, servers, lines, policy):
        cluster = Decided(servers, lines)
        self.addCleanup(cluster.remove)
        first = cluster.start().members[0]
        first.run("mkdir", f"{PREFIX}/v")
        targets = 2 * servers
        first.operate("stripe", "set", "--count", str(targets), "--size", "64KiB", f"{PREFIX}/v")
        first.operate("policy", "set", policy)
        return cluster

    def load(self, member, jobs):
        """Jobs that write to so many targets each, all from one."""
        for name, targets in jobs.items():
            path = f"{PREFIX}/v/{name}"
            log = self.gap_log(name)
            self.program(member, "python3", "-c", WRITES, path, str(64 * targets), log, job=name, timeout_s=300)

    def gap_log(self, name):
        """Where a program notes the longest time that it waited."""
        if not hasattr(self, "gap_logs"):
            directory = tempfile.TemporaryDirectory(prefix="isonomia-gaps-")
            self.addCleanup(directory.cleanup)
            self.gap_logs = pathlib.Path(directory.name)
        return str(self.gap_logs / name.replace("/", "-"))

    def longest_gaps_s(self):
        """The longest time for which each program has waited for a write, one that goes on included, by its own log."""
        found = {}
        for log in sorted(self.gap_logs.iterdir()):
            if log.suffix != ".new":
                longest, last = map(float, log.read_text().split())
                found[log.name] = max(longest, time.monotonic() - last)
        return found

    def test_another_server_takes_over(self):
        self.needs("etcd")
        etcd = Etcd()
        self.addCleanup(etcd.remove)
        lines = f'coordination = "etcd://127.0.0.1:{etcd.port}"\ndecide = "{DECIDE_S}s"'
        cluster = self.cluster(SERVERS, lines, "gift{throttle=0.5,window=1000000000,system-window=1000000000}")
        # Not through the one that is killed.
        decides = wait_for(lambda: [name for name, told in controllers(cluster.members).items() if told["is_here"]], 30)
        self.assertEqual(len(decides), 1)
        other = next(member for member in cluster.members if member.name != decides[0])
        self.load(other, {"wide": 2 * SERVERS, "narrow": 1})

        def followed(beyond):
            told = controllers(cluster.members)
            is_followed = [found["version"] > 0 and found["term"] > beyond for found in told.values()]
            return told if all(is_followed) else None

        def heard(beyond):
            told = controllers(cluster.members)
            return told if all(found["term"] > beyond for found in told.values()) else None

        before = wait_for(lambda: followed(0), 30)
        term = before[decides[0]]["term"]
        killed = next(member for member in cluster.members if member.name == decides[0])
        killed.kill()
        begun = time.monotonic()
        # The jobs wait for the stripes of the one that is gone, so nothing is decided; but all hear of a new controller.
        after = wait_for(lambda: heard(term), 60)
        took_s = time.monotonic() - begun
        new = {found["server"] for found in after.values()}
        self.assertEqual(len(new), 1)
        self.assertNotIn(decides[0], new)
        print(f"taken over after {took_s:.1f} s", flush=True)
        self.assertLess(took_s, 2 * TAKEN_OVER_S)
        # It goes on with what was owed.
        issued = self.ledger(other)
        self.assertGreater(sum(account["issued"] for account in issued["accounts"]), 0)
        # The one that was killed comes back, and follows.
        killed.start()
        wait_for(lambda: followed(term) if len(controllers(cluster.members)) == SERVERS else None, 60)
        # Without etcd nobody decides once the lease has ended, and all targets share fairly.
        etcd.kill()
        shared = lambda: all(found["version"] == 0 for found in controllers(cluster.members).values())  # noqa: E731
        wait_for(shared, 30)
        etcd.start()
        wait_for(lambda: followed(0), 30)

    def ledger(self, member):
        told = wait_for(lambda: member.operate("coupons", "--json", check=False).stdout, 30)
        ledger = json.loads(told)
        for account in ledger["accounts"]:
            whole = account["redeemed"] + account["outstanding"] + account["compensated"]
            self.assertEqual(account["issued"], whole, account)
        return ledger

    def test_no_coupon_is_lost_when_the_server_is_killed(self):
        policy = "gift{throttle=0.5,window=1000000000,system-window=1000000000,period=3s,budget=1000,decide=100ms}"
        cluster = self.cluster(1, "", policy)
        only = cluster.members[0]
        self.load(only, {"wide": 2, "narrow": 1})
        seen = {}
        for _ in range(KILLS):
            wait_for(lambda: only.status()["cluster"]["controller"]["decisions_total"] > 3, 30)
            before = self.ledger(only)
            time.sleep(random.uniform(0, 1))
            only.kill()
            only.start()
            wait_for(lambda: only.status()["cluster"]["controller"]["is_here"], 30)
            for account in before["accounts"]:
                seen[account["account"]] = account["issued"]
            after = {account["account"]: account for account in self.ledger(only)["accounts"]}
            for name, issued in seen.items():
                self.assertGreaterEqual(after[name]["issued"], issued, name)
        self.assertGreater(seen.get("user=root job=narrow", 0) + sum(seen.values()), 0)
        paid = wait_for(lambda: json.loads(only.operate("regret", "--json").stdout)["periods"], 30)
        for period in paid:
            self.assertLessEqual(sum(payment["node_s"] for payment in period["payments"]), 1000 * 3600)
        lines = only.operate("regret").stdout.splitlines()
        self.assertEqual(lines[0], "Period|Ended|User|Account|NodeSeconds")

    def test_a_later_run_redeems_what_an_earlier_one_is_owed(self):
        policy = "gift{throttle=0.5,window=1000000000,system-window=1000000000,decide=200ms}"
        cluster = self.cluster(2, "", policy)
        first = cluster.members[0]
        places = {"both": f"{FIRST},{SECOND}", "first": FIRST, "second": SECOND}
        for name, targets in places.items():
            first.run("mkdir", f"{PREFIX}/{name}")
            first.operate("stripe", "set", "--targets", str(targets), "--size", "64KiB", f"{PREFIX}/{name}")

        def begin(job, place, title):
            path, kib = f"{PREFIX}/{place}/{job}", 128 if place == "both" else 64
            command = ["python3", "-c", WRITES, path, str(kib)]
            return self.program(first, *command, job=job, timeout_s=300, more=["--title", title])

        def solver():
            """the account of the application of which there are two runs"""
            accounts = self.ledger(first)["accounts"]
            found = [account for account in accounts if account["account"].endswith(f" job={title}")]
            self.assertLessEqual(len(found), 1, accounts)
            return found[0] if found else None

        # It is throttled for one that uses both targets, and ends before there is a gap for it. There is one if the other has no
        # processor for longer than it takes to decide: then another application is begun.
        for attempt in range(ATTEMPTS):
            title = f"solver{attempt}"
            run = [begin(f"71{attempt}", "first", title), begin(f"8{attempt}", "both", f"wide{attempt}")]
            wait_for(lambda: (account := solver()) and account["outstanding"] > 0, 60)
            for program in run:
                program.kill()
                program.wait()
            before = solver()
            if before["redeemed"] == 0:
                break
        self.assertEqual((before["redeemed"], before["compensated"]), (0, 0))
        listed = wait_for(lambda: first.operate("coupons", "--slurm", check=False).stdout, 30).splitlines()
        self.assertEqual(listed[0], "User|Account|Coupons|NodeSeconds")
        self.assertEqual([line.split("|")[0] for line in listed[1:]], [before["user"]])
        for member in cluster.members:
            self.assertEqual(member.stop(), 0)
        cluster.start()
        wait_for(lambda: first.status()["cluster"]["controller"]["is_here"], 30)
        between = solver()
        self.assertGreaterEqual(between["outstanding"], before["outstanding"])
        self.assertEqual(between["redeemed"], 0)
        # Of the second target everybody has a third, and so of the first: what is left there is the next run's.
        begin("72", "first", title)
        for job, place in {"9": "both", "10": "second", "11": "second"}.items():
            begin(job, place, f"other{job}")
        after = wait_for(lambda: (account := solver()) and account["redeemed"] > 0 and account, 60)
        self.assertEqual(after["issued"], after["redeemed"] + after["outstanding"])

    def test_gift_is_tried_beside_another_policy(self):
        cluster = self.cluster(2, f'decide = "{DECIDE_S}s"', "job-fair")
        first = cluster.members[0]
        self.load(first, {"wide": 4, "narrow": 1})
        first.operate("policy", "shadow", "gift{throttle=0.5,window=1000000000,system-window=1000000000}")

        def narrow():
            """the job on one target had more than GIFT would give it, who throttles it for the one on all"""
            jobs = [job for member in cluster.members for job in member.status()["shadow"]["jobs"]]
            found = [(job["share_had"], job["share_would"]) for job in jobs if job["job"] == "narrow"]
            return any(had > 0.2 and 0.3 < would / had < 0.7 for had, would in found)

        # Of the first moment it says little, and of the last two seconds each time.
        wait_for(lambda: all(narrow() and not time.sleep(0.5) for _ in range(6)), 60)
        self.assertEqual([0, 0], [found["decisions_total"] for found in controllers(cluster.members).values()])
        self.assertIn("without a say: gift", first.operate("status").stdout)
        refused = first.operate("policy", "shadow", "exclusive", check=False)
        self.assertIn("cannot be tried beside", refused.stderr)

    def test_a_server_alone_says_that_nobody_decides(self):
        server = self.server()
        refused = server.operate("policy", "set", "gift", check=False)
        self.assertEqual(refused.returncode, 1)
        self.assertIn("gift is decided by a cluster's controller, and this server is in no cluster", refused.stderr)
