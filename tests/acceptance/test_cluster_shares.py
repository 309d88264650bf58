"""A policy holds over all servers of a cluster, each of which decides for itself."""

import json
import subprocess
import tempfile
import textwrap
from pathlib import Path

import test_cluster
from service import PREFIX, PROGRAM_S, SERVER_S, Case, clean_environment, if_all_answer, isonomia, wait_for

SERVERS = 4
# Of each server: so slow that a busy machine is fast enough beside it.
BANDWIDTH = "8MiB/s"
STRIPE_KIB = 256
# Every request goes to all servers.
REQUEST_KIB = SERVERS * STRIPE_KIB
# What is counted of the service of all jobs on each server: 192 stripes. A process that waits for a processor misses a stripe
# or two, which must stay little beside all of them.
SERVICE_NS = 6_000_000_000
# Windows of so much service at most, of which one has to have the shares that are due: on a machine that stalls, a job may not
# have asked for its share in one of them. A policy that is wrong is so in all.
WINDOWS = 5
SHARES_APART = 0.05
WRITES = textwrap.dedent(f"""
    import os, sys
    file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o644)
    while True:
        os.pwrite(file, bytes({REQUEST_KIB} << 10), 0)
""")


class Capped(test_cluster.Cluster):
    def __init__(self):
        super().__init__(SERVERS, below="/dev/shm")
        text = self.file.read_text()
        self.file.write_text(text.replace("targets = 2", f'targets = [{{ bandwidth = "{BANDWIDTH}", per_op = "10us" }}]'))
        for member in self.members:
            member.more = ["--trust-clients"]


class Shares(Case):
    # Times and shares are looked at.
    alone = True

    def contest(self, policy, jobs, due):
        """The first of the jobs has the part of the service on each server that is due."""
        cluster = Capped()
        self.addCleanup(cluster.remove)
        first = cluster.start().members[0]
        first.run("mkdir", f"{PREFIX}/v")
        first.operate("stripe", "set", "--count", str(SERVERS), "--size", f"{STRIPE_KIB}KiB", f"{PREFIX}/v")
        first.operate("policy", "set", policy)
        for name, (processes, nodes) in jobs.items():
            for number in range(processes):
                who = ["--user", name, "--nodes", str(nodes)]
                path = f"{PREFIX}/v/{name}-{number}"
                self.program(first, "python3", "-c", WRITES, path, job=name, more=who, timeout_s=60)

        def served():
            """Nanoseconds for each job on each server."""
            told = wait_for(lambda: if_all_answer(first.operate("status", "--json").stdout), SERVER_S)
            of = [{job["job"]: job["service_ns_total"] for job in server["status"]["jobs"]} for server in told["servers"]]
            return [[found.get(name, 0) for name in jobs] for found in of]

        # From when all of them have begun.
        wait_for(lambda: all(all(found) for found in served()), 60)
        for _ in range(WINDOWS):
            before = served()

            def differences():
                between = [[b - a for a, b in zip(*pair)] for pair in zip(before, served())]
                return between if all(sum(found) >= SERVICE_NS for found in between) else None

            shares = [found[0] / sum(found) for found in wait_for(differences, 60)]
            if all(abs(share - due) <= SHARES_APART for share in shares):
                break
        for share in shares:
            self.assertAlmostEqual(share, due, delta=SHARES_APART, msg=policy)

    def test_a_process_has_as_much_as_four(self):
        for policy in ["user-fair", "job-fair"]:
            self.contest(policy, {"one": (1, 1), "four": (4, 1)}, due=0.5)

    def test_nodes_count_over_all_servers(self):
        self.contest("size-fair", {"large": (2, 4), "small": (2, 1)}, due=0.8)


class Demo(Case):
    def test_it_shows_the_same_table_over_four_servers(self):
        with tempfile.TemporaryDirectory(prefix="isonomia-demo-") as out:
            done = subprocess.run(
                [isonomia(), "demo", "--servers", "4", "--seconds", "3", "--out", out],
                capture_output=True, text=True, timeout=PROGRAM_S, env=clean_environment(), stdin=subprocess.DEVNULL,
            )  # fmt: skip
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("4 servers with a device of 128MiB/s", done.stdout)
            rows = [line.split()[:2] for line in done.stdout.splitlines() if line.split()[1:2] in (["small"], ["large"])]
            policies = ["fifo", "job-fair", "size-fair"]
            self.assertEqual(rows, [[policy, job] for policy in policies for job in ["small", "large"]])
            written = {path.name for path in Path(out).iterdir()}
            self.assertLessEqual({"demo.json", "io01.log", "io04.log", "size-fair.png", "job-fair.csv"}, written)
            saved = json.loads((Path(out) / "demo.json").read_text())
            self.assertEqual(saved["configuration"]["servers"], 4)
