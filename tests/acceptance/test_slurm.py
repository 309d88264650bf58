"""Node-hours that are given back, by Slurm's own accounting."""

import json
import tempfile
import unittest
from pathlib import Path

import slurm
import test_controller
from service import PREFIX, Case, wait_for

# So many nodes that the shortest time of being throttled is worth minutes of one.
NODES = 100_000
POLICY = "gift{throttle=0.5,window=1000000000,system-window=1000000000,period=1s,budget=1000,decide=100ms}"
ASTRO = (slurm.CLUSTER, "astro")


@unittest.skipIf(slurm.why_not(), slurm.why_not())
class Credits(Case):
    # Shares are looked at.
    alone = True

    @classmethod
    def setUpClass(cls):
        cls.slurm = slurm.Slurm()
        cls.addClassCleanup(cls.slurm.remove)
        cls.slurm.start()

    def setUp(self):
        super().setUp()
        directory = tempfile.TemporaryDirectory(prefix="isonomia-credits-")
        self.addCleanup(directory.cleanup)
        self.script = Path(directory.name) / "credits.sh"

    def add(self, user, *more, clusters=slurm.CLUSTER):
        """An association of a user at the account astro."""
        self.slurm.sacctmgr("-i", "add", "user", user, "account=astro", f"cluster={clusters}", *more)

    def run_script(self):
        return self.slurm.ask("sh", str(self.script), check=False)

    def of_period(self):
        """The script of a period in which ada and eve were throttled, by a server, and what it says they are owed, in node-seconds."""
        cluster = test_controller.Decided(1, "")
        self.addCleanup(cluster.remove)
        only = cluster.start().members[0]
        for place, targets in {"both": "0,1", "first": "0"}.items():
            only.run("mkdir", f"{PREFIX}/{place}")
            only.operate("stripe", "set", "--targets", targets, "--size", "64KiB", f"{PREFIX}/{place}")
        only.operate("policy", "set", POLICY)
        wait_for(lambda: only.status()["cluster"]["controller"]["is_here"], 30)
        for user, place in {"wide": "both", "ada": "first", "eve": "first"}.items():
            more = ["--user", user, "--group", "astro", "--nodes", str(NODES)]
            kib = 128 if place == "both" else 64
            command = ["python3", "-c", test_controller.WRITES, f"{PREFIX}/{place}/{user}", str(kib)]
            self.program(only, *command, job=user, timeout_s=300, more=more)

        def owed():
            """a period is over for which both are owed at least a minute"""
            for period in json.loads(only.operate("regret", "--json").stdout)["periods"]:
                users = {payment["user"]: payment["node_s"] for payment in period["payments"]}
                if all(users.get(user, 0) >= 60 for user in ["ada", "eve"]):
                    return period["number"], users
            return None

        number, users = wait_for(owed, 60)
        return only.operate("regret", "--period", str(number), "--slurm").stdout, users

    def write_script(self, text, *credits):
        """The script with other credits."""
        head, mark, rest = text.partition("period=")
        lines = [f"credit {user} astro {minutes}" for user, minutes in credits]
        self.script.write_text("\n".join([head + mark + rest.splitlines()[0], *lines, "exit $status\n"]))

    def test_limits_grow_by_what_is_owed_and_once(self):
        self.slurm.sacctmgr("-i", "add", "cluster", "c2")
        self.slurm.sacctmgr("-i", "add", "account", "astro", f"cluster={slurm.CLUSTER},c2")
        self.add("ada", "GrpTRESMins=cpu=70,node=1000", "GrpTRES=node=5")
        self.add("bob", "GrpTRESMins=node=7")
        before = self.slurm.limits()
        text, users = self.of_period()
        self.script.write_text(text)
        minutes = users["ada"] // 60
        done = self.run_script()
        self.assertIn(f"credited: ada astro {minutes} (node=1000 is node={1000 + minutes} now)", done.stdout)
        # Slurm knows no user eve.
        self.assertEqual("not credited: eve at astro has not just one association\n", done.stderr)
        self.assertEqual(1, done.returncode, done)
        after = before | {(*ASTRO, "ada", ""): f"cpu=70,node={1000 + minutes}"}
        self.assertEqual(after, self.slurm.limits())
        # The controller that starts jobs has it as well.
        wait_for(lambda: f"node={1000 + minutes}(" in self.slurm.followed("ada"))
        again = self.run_script()
        self.assertIn(f"credited before: ada astro {minutes}\n", again.stdout)
        self.assertEqual(after, self.slurm.limits())
        self.of_several_associations(text)
        self.of_who_may_not(text)

    def of_several_associations(self, text):
        """Whom Slurm knows in more than one place is left alone, and so is who has no limit."""
        self.add("free")
        self.add("two", "GrpTRESMins=node=3", clusters=f"{slurm.CLUSTER},c2")
        self.add("parts", "partition=p1,p2", "GrpTRESMins=node=5")
        self.add("part", "partition=p2", "GrpTRESMins=node=4")
        self.add("over", "GrpTRESMins=node=2000000", clusters="c2")
        before = self.slurm.limits()
        self.write_script(text, ("free", 1), ("two", 2), ("parts", 3), ("part", 4), ("over", 1_500_000))
        done = self.run_script()
        for user, why in [("free", "one limit GrpTRESMins=node"), ("two", "one association"), ("parts", "one association")]:
            self.assertIn(f"not credited: {user} at astro has not just {why}\n", done.stderr)
        after = before | {(*ASTRO, "part", "p2"): "node=8", ("c2", "astro", "over", ""): "node=3500000"}
        self.assertEqual(after, self.slurm.limits())

    def of_who_may_not(self, text):
        """Whoever may not change a limit is told, and changes nothing; an administrator goes on from there."""
        before = self.slurm.limits()
        self.write_script(text, ("bob", 5), ("part", 6))
        self.script.parent.chmod(0o777)
        self.script.with_suffix(".sh.done").chmod(0o666)
        nobody = ["setpriv", "--reuid", "nobody", "--regid", "nogroup", "--clear-groups"]
        refused = self.slurm.ask(*nobody, "sh", str(self.script), check=False)
        self.assertEqual(1, refused.returncode, refused)
        self.assertIn("stopped at: credit bob astro 5", refused.stderr)
        self.assertEqual(before, self.slurm.limits())
        done = self.run_script()
        self.assertEqual((0, ""), (done.returncode, done.stderr), done)
        after = before | {(*ASTRO, "bob", ""): "node=12", (*ASTRO, "part", "p2"): "node=14"}
        self.assertEqual(after, self.slurm.limits())
