"""Policies: refused with what is allowed, and changed under load without an error in a program."""

import hashlib
import json
import subprocess

from service import PREFIX, PROGRAM_S, SERVER_S, Case, clean_environment, isonomia, wait_for

POLICIES = ["fifo", "job-fair", "size-fair", "user-then-size-fair", "group{astro=3,bio=1}-then-job-fair", "priority-fair"]


class Policies(Case):
    def expect_allowed_list(self, text, wrong):
        for word in [wrong, "fifo", "group", "user", "job", "size", "priority"]:
            self.assertIn(word, text)

    def test_an_unknown_policy_is_refused_at_the_start(self):
        done = subprocess.run([isonomia(), "serve", "--policy", "round-robin"], capture_output=True, text=True,
                              timeout=PROGRAM_S, env=clean_environment())
        self.assertEqual(2, done.returncode)
        self.assertEqual("", done.stdout)
        self.expect_allowed_list(done.stderr, "round")

    def test_an_unknown_policy_is_refused_by_a_running_server(self):
        server = self.server("--policy", "size-fair")
        done = server.operate("policy", "set", "best-effort", check=False)
        self.assertNotEqual(0, done.returncode)
        self.expect_allowed_list(done.stderr, "best")
        self.assertEqual("size-fair", server.status()["policy"])

    def test_unknown_options_and_addresses_are_refused(self):
        for arguments, hint in [
            (["serve", "--polcy", "fifo"], "--policy"),
            (["serve", "--listen", "udp:host:1"], "unix:PATH, tcp:HOST:PORT"),
            (["serve", "--draw", "dice"], "virtual-time"),
            (["run", "--nodes", "0", "--", "true"], "--nodes"),
            (["serve", "--bandwidth", "fast"], "--bandwidth"),
        ]:
            with self.subTest(arguments):
                done = subprocess.run([isonomia(), *arguments], capture_output=True, text=True, timeout=PROGRAM_S,
                                      env=clean_environment())
                self.assertEqual((2, ""), (done.returncode, done.stdout))
                self.assertIn(hint, done.stderr)

    def test_policies_change_under_load(self):
        server = self.server("--bandwidth", "400MiB/s", "--per-op", "10us")
        script = """
            until [ -e {2} ]; do
                for i in 1 2 3 4; do dd if={0} of={1}/$0-$i bs=256k count=160 status=none || exit 1; done
            done
        """
        source, stop = server.temporary / "source", server.temporary / "stop"
        source.write_bytes(bytes(range(256)) * 1024 * 160)
        programs = [
            self.program(server, "bash", "-c", script.format(source, PREFIX, stop), name, job=name) for name in ["a", "b", "c"]
        ]
        wait_for(lambda: all((server.job(name) or {}).get("written_bytes_total") for name in ["a", "b", "c"]), SERVER_S)
        for switches in range(2 * len(POLICIES)):
            spec = POLICIES[switches % len(POLICIES)]
            server.operate("policy", "set", spec, "--draw", "lottery" if switches % 4 == 1 else "virtual-time")
            self.assertIn(spec.split("-")[0], json.loads(server.operate("policy", "get", "--json").stdout)["policy"])
        self.assertEqual([None] * 3, [program.poll() for program in programs])
        stop.touch()
        for program in programs:
            out, err = program.communicate(timeout=PROGRAM_S)
            self.assertEqual((0, ""), (program.returncode, err), out)
        wanted = hashlib.md5(source.read_bytes()).hexdigest()
        sums = server.run("bash", "-c", f"md5sum {PREFIX}/*-*").stdout.split()[::2]
        self.assertEqual([wanted] * 12, sums)

    def test_shares_that_are_due_are_received(self):
        # Far from exact here: exactness is shown in virtual time and in the benchmark.
        server = self.server("--bandwidth", "200MiB/s", "--trust-clients", "--policy", "size-fair")
        for job, nodes in [("large", "3"), ("small", "1")]:
            for part in range(2):
                self.program(server, "dd", "if=/dev/zero", f"of={PREFIX}/{job}-{part}", "bs=1M", "count=100000", job=job,
                             more=["--nodes", nodes])

        def ratio():
            """both jobs share as is due to them"""
            large, small = server.job("large"), server.job("small")
            if not large or not small or not small["throughput_bytes_per_s"]:
                return False
            due = large["share_due"] / max(small["share_due"], 1e-9)
            return abs(due - 3) < 0.01 and 2 < large["share_received"] / max(small["share_received"], 1e-9) < 4.5

        wait_for(ratio, 30)
        text = server.operate("status").stdout
        self.assertIn("large", text)
        self.assertIn("small", text)

    def test_claims_are_not_believed_unless_told_so(self):
        claims = ["--user", "somebody", "--group", "elsewhere", "--nodes", "64", "--priority", "9"]
        for options, expected in [((), (1, 1)), (("--trust-clients",), (64, 9))]:
            with self.subTest(options):
                server = self.server(*options)
                server.run("touch", f"{PREFIX}/f", job="claimant", more=claims)
                job = server.job("claimant")
                self.assertEqual(expected, (job["nodes"], job["priority"]))
                self.assertEqual(bool(options), job["user"] == "somebody")
                self.assertEqual(bool(options), server.status()["trust_clients"])
                self.assertEqual(bool(options), "trust" in server.log())

    def test_a_scheduler_names_the_job(self):
        server = self.server()
        slurm = {"SLURM_JOB_ID": "4711", "SLURM_JOB_NUM_NODES": "8", "SLURM_JOB_ACCOUNT": "astro"}
        server.run("touch", f"{PREFIX}/f", env=slurm)
        job = server.job("4711")
        # The environment is the user's own: it names the job and its size within his share, and no group that he is not in.
        self.assertEqual((8, "claim"), (job["nodes"], job["proof"]))
        self.assertNotEqual("astro", job["group"])
        trusting = self.server("--trust-clients")
        trusting.run("touch", f"{PREFIX}/f", env=slurm)
        job = trusting.job("4711")
        self.assertEqual((8, "astro", "trust"), (job["nodes"], job["group"], job["proof"]))
