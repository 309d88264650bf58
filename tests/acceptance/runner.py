"""Runs tests in several processes, and counts what came of them."""

import collections
import dataclasses
import io
import multiprocessing
import multiprocessing.connection
import os
import signal
import time
import unittest


@dataclasses.dataclass
class Outcome:
    """What came of tests, by their names."""

    passed: int = 0
    failed: list = dataclasses.field(default_factory=list)
    # With the reasons.
    skipped: list = dataclasses.field(default_factory=list)

    def add(self, other):
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped

    def is_good(self):
        """Whether there was something to do and nothing failed."""
        return not self.failed and self.passed + len(self.skipped) > 0

    def summary(self):
        """What failed and what was skipped, a line each, and the counts."""
        skipped = [f"skipped: {name}: {' '.join(reason.split())}" for name, reason in self.skipped]
        failed = [f"failed: {name}" for name in self.failed]
        counts = f"{self.passed} passed, {len(self.failed)} failed, {len(self.skipped)} skipped"
        return "\n".join([*failed, *skipped, counts])


class Result(unittest.TextTestResult):
    """One line a test, with its time."""

    def __init__(self):
        self.text = io.StringIO()
        # What the base class writes to has this method besides.
        self.text.writeln = lambda line="": self.text.write(f"{line}\n")
        super().__init__(self.text, descriptions=False, verbosity=2)
        self.passed = 0

    def startTest(self, test):
        self.started = time.monotonic()
        super().startTest(test)

    def addSuccess(self, test):
        self.passed += 1
        super().addSuccess(test)

    def addSkip(self, test, reason):
        if os.environ.get("ISONOMIA_REQUIRE_ALL_TESTS") == "1":
            self.addFailure(test, (AssertionError, AssertionError(f"this test is required: {reason}"), None))
        else:
            super().addSkip(test, reason)

    def stopTest(self, test):
        self.text.write(f"    {time.monotonic() - self.started:.1f} s\n")
        super().stopTest(test)

    def getDescription(self, test):
        return test.id()

    def outcome(self):
        # What is expected to fail and does not is expected wrongly.
        failed = [test.id() for test, _ in [*self.failures, *self.errors]] + [test.id() for test in self.unexpectedSuccesses]
        return Outcome(self.passed, failed, [(test.id(), reason) for test, reason in self.skipped])


def run_here(tests):
    """Runs tests in this process; what there is to read, and what came of them."""
    result = Result()
    unittest.TestSuite(tests).run(result)
    result.printErrors()
    return result.text.getvalue(), result.outcome()


def units(tests):
    """Lists of tests: those of a class whose tests share something are together, all others by themselves."""
    together = collections.defaultdict(list)
    for number, test in enumerate(tests):
        shares = type(test).setUpClass.__func__ is not unittest.TestCase.setUpClass.__func__
        together[type(test) if shares else number].append(test)
    return list(together.values())


def is_alone(unit):
    return getattr(type(unit[0]), "alone", False)


def run(tests, jobs, out):
    """Runs all of them, up to `jobs` units at once and those that want to be alone after all others, and writes to `out` as they end."""
    everything = units(tests)
    crowd = [unit for unit in everything if not is_alone(unit)]
    loners = [unit for unit in everything if is_alone(unit)]
    outcome = Outcome()
    for some, at_once in [(crowd, jobs), (loners, 1)]:
        if some:
            outcome.add(Crew(some, min(at_once, len(some)), out).run())
    return outcome


class Crew:
    """Processes that take units of tests one after the other."""

    def __init__(self, units, jobs, out):
        self.units = units
        self.out = out
        self.next = 0
        # The unit that each works on, by its connection, and its process.
        self.busy = {}
        self.pids = {}
        self.outcome = Outcome()
        self.jobs = jobs

    def run(self):
        before = signal.signal(signal.SIGTERM, self.stopped)
        try:
            for _ in range(self.jobs):
                self.hire()
            while self.busy:
                for connection in multiprocessing.connection.wait(list(self.busy)):
                    self.take(connection)
        finally:
            self.end()
            signal.signal(signal.SIGTERM, before)
        return self.outcome

    def hire(self):
        ours, theirs = multiprocessing.Pipe()
        pid = os.fork()
        if pid == 0:
            ours.close()
            for other in self.busy:
                other.close()
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            work(theirs, self.units)
        theirs.close()
        self.pids[ours] = pid
        self.give(ours)

    def give(self, connection):
        """Has it do the next unit, or nothing more."""
        if self.next == len(self.units):
            return self.dismiss(connection)
        self.busy[connection] = self.next
        self.next += 1
        try:
            connection.send(self.busy[connection])
        except OSError:
            # It is gone, which is seen when it is listened to.
            pass

    def dismiss(self, connection):
        self.busy.pop(connection, None)
        connection.close()
        os.waitpid(self.pids.pop(connection), 0)

    def take(self, connection):
        """What it has done."""
        try:
            text, outcome = connection.recv()
        except (EOFError, OSError):
            # The process is gone, and with it what it had done of its unit.
            names = [test.id() for test in self.units[self.busy[connection]]]
            self.dismiss(connection)
            text, outcome = f"the process of these tests ended: {' '.join(names)}\n", Outcome(failed=names)
            if self.next < len(self.units):
                self.hire()
        else:
            self.give(connection)
        self.out.write(text)
        self.out.flush()
        self.outcome.add(outcome)

    def end(self):
        """Nobody goes on when this does not."""
        for pid in self.pids.values():
            os.kill(pid, signal.SIGTERM)

    def stopped(self, *_):
        """Somebody ends this run: what takes so long?"""
        for unit in self.busy.values():
            names = " ".join(test.id() for test in self.units[unit])
            self.out.write(f"stopped at: {names}\n")
        self.out.flush()
        self.end()
        os._exit(1)


def work(connection, units):
    """Does units until there are no more, and ends the process."""
    try:
        while True:
            connection.send(run_here(units[connection.recv()]))
    except EOFError:
        pass
    finally:
        # A thread that hangs in a test must not keep the process.
        os._exit(0)
