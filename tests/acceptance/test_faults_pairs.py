"""A cluster that two kinds of faults break at a time: see `test_faults_cluster`."""

import os
import shutil
import signal
import subprocess
import unittest

from cluster_on_hosts import CLIENTS, SPARE, Member
from service import TEST_S
from test_faults_cluster import SEED, Faults

# How often every kind of fault is one of a pair, each time of others: `make faults` has more, from any seed.
ROUNDS = int(os.environ.get("ISONOMIA_FAULT_ROUNDS", 1))


@unittest.skipUnless(os.geteuid() == 0, "a small file system takes root")
class FaultsInPairs(Faults):
    """Two kinds of faults at a time, of two servers: every kind is in a pair with others, as the seed has it."""

    HOSTS = True
    # Which servers each kind is tried on. That whose disk fills up has a file system of its own; only the first has a host to spare.
    KINDS = {
        "killed": (1, 2, 3, 4), "standing still": (1, 2, 3, 4), "cut off": (1, 2, 3, 4), "mute": (1, 2, 3, 4), "full": (4,),
        "empty": (2, 3), "taken over": (1,), "without a program": (0,),
    }  # fmt: skip

    def prepare(self):
        signal.alarm(ROUNDS * TEST_S)
        place = self.cluster.directory / "io4"
        place.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=96m", "tmpfs", place], check=True)
        self.addCleanup(subprocess.run, ["umount", "--lazy", place])

    def begin(self, kind, number):
        """Has something break; what puts it right."""
        if kind == "without a program":
            worker = self.random.choice(self.workers)
            worker.kill()
            return worker.start
        member = self.members[number]
        if kind == "killed":
            member.kill()
            return lambda: self.restart(number)
        if kind == "standing still":
            member.signal(signal.SIGSTOP)
            return lambda: member.signal(signal.SIGCONT)
        if kind == "cut off":
            self.network.cut_off(member.host)
            return lambda: self.network.connect(member.host)
        if kind == "mute":
            others = [other.host for other in self.members.values() if other is not member]
            towards = self.random.choice([*others, CLIENTS])
            self.network.mute(member.host, towards)
            return lambda: self.network.unmute(member.host, towards)
        if kind == "full":
            filler = self.fill(number)

            def freed():
                member.kill()
                filler.unlink()
                self.restart(number)

            return freed
        return self.emptied(member) if kind == "empty" else self.taken_over(member)

    def emptied(self, member):
        member.kill()
        kept = member.directory.with_suffix(".kept")
        member.directory.rename(kept)
        member.start()

        def back():
            # If the root server told it, it has ended by now.
            self.assertIn(member.process.poll(), [None, 3], member.log())
            if member.process.poll() is None:
                member.kill()
            else:
                member.process.stdout.close()
            shutil.rmtree(member.directory)
            kept.rename(member.directory)
            self.restart(member.number)

        return back

    def taken_over(self, old):
        old.signal(signal.SIGSTOP)
        new = Member(self.cluster, old.number)
        new.host = SPARE if old.host == old.number else old.number
        self.cluster.others.append(old)
        self.members[old.number] = new.start("--take-over").ready()

        def ended():
            old.signal(signal.SIGCONT)
            self.assertEqual(old.process.wait(60), 3, old.log())

        return ended

    def test_every_kind_of_fault_beside_others(self):
        pairs = []
        for _ in range(ROUNDS):
            kinds = self.random.sample(sorted(self.KINDS), len(self.KINDS))
            while any(len(set(self.KINDS[one] + self.KINDS[other])) < 2 for one, other in zip(kinds[::2], kinds[1::2])):
                self.random.shuffle(kinds)
            pairs += zip(kinds[::2], kinds[1::2])
        print(f"\n    seed {SEED}: {pairs}", end="")
        for one, other in pairs:
            first = self.random.choice(self.KINDS[one])
            second = self.random.choice([number for number in self.KINDS[other] if number != first] or [0])
            if second == 0 and other != "without a program":
                # The other one has but one server: this one takes another.
                second = self.KINDS[other][0]
                first = self.random.choice([number for number in self.KINDS[one] if number != second])
            what = f"io{first} {one}, io{second} {other}"
            begun = [self.begin(one, first)]
            self.a_while()
            begun.append(self.begin(other, second))
            self.a_while(1, 3)
            self.random.shuffle(begun)
            for put_right in begun:
                put_right()
                self.a_while()
            self.all_work(what)
        self.check()
