"""The runner's own work: what is skipped is told with its reason, and nothing that fails is overlooked."""

import io
import os
import signal
import unittest
from unittest import mock

import runner


class Kinds(unittest.TestCase):
    """Not run by itself: its tests have other names."""

    def passes(self):
        pass

    def cannot_run(self):
        self.skipTest("there is no\ndevice")

    def fails(self):
        self.fail("as it should")

    def ends_the_process(self):
        os._exit(7)

    def is_killed(self):
        os.kill(os.getpid(), signal.SIGKILL)

    @unittest.expectedFailure
    def passes_unexpectedly(self):
        pass


class Sharing(Kinds):
    @classmethod
    def setUpClass(cls):
        cls.shared = os.getpid()


class Alone(Kinds):
    alone = True

    def passes(self):
        self.assertEqual(self.id()[-6:], "passes")


def run(*tests, jobs=2):
    out = io.StringIO()
    return runner.run(tests, jobs, out), out.getvalue()


class Counting(unittest.TestCase):
    def test_a_skipped_test_is_told_and_has_not_passed(self):
        outcome, _ = run(Kinds("passes"), Kinds("cannot_run"))
        reason, counts = outcome.summary().splitlines()
        self.assertRegex(reason, r"^skipped: .*Kinds\.cannot_run: there is no device$")
        self.assertEqual((counts, outcome.is_good()), ("1 passed, 0 failed, 1 skipped", True))

    def test_where_all_tests_are_required_it_fails(self):
        with mock.patch.dict(os.environ, {"ISONOMIA_REQUIRE_ALL_TESTS": "1"}):
            outcome, _ = run(Kinds("passes"), Kinds("cannot_run"))
        self.assertEqual(outcome.summary().splitlines()[-1], "1 passed, 1 failed, 0 skipped")
        self.assertFalse(outcome.is_good())

    def test_what_fails_is_told_with_its_reason_and_named_at_the_end(self):
        outcome, text = run(Kinds("passes"), Kinds("fails"), Kinds("passes_unexpectedly"))
        self.assertIn("AssertionError: as it should", text)
        named, unexpected, counts = outcome.summary().splitlines()
        self.assertRegex(named + unexpected, r"^failed: .*Kinds\.fails.*failed: .*Kinds\.passes_unexpectedly$|^.*unexpectedly.*Kinds\.fails$")
        self.assertEqual((counts, outcome.is_good()), ("1 passed, 2 failed, 0 skipped", False))

    def test_a_test_that_ends_its_process_has_failed_and_the_others_go_on(self):
        for jobs in [1, 2, 5]:
            for end in ["ends_the_process", "is_killed"]:
                outcome, text = run(Kinds(end), *[Kinds("passes")] * 4, Kinds(end), jobs=jobs)
                self.assertEqual(outcome.summary().splitlines()[-1], "4 passed, 2 failed, 0 skipped", text)

    def test_those_of_a_class_that_share_something_are_together(self):
        tests = [Sharing("passes"), Kinds("passes"), Sharing("fails"), Kinds("fails")]
        self.assertEqual(runner.units(tests), [[tests[0], tests[2]], [tests[1]], [tests[3]]])

    def test_who_wants_to_be_alone_comes_when_all_others_are_done(self):
        _, text = run(Alone("passes"), Kinds("passes"), Sharing("passes"))
        names = [line.split(" ")[0].split(".")[-2] for line in text.splitlines() if "passes" in line]
        self.assertEqual((sorted(names[:2]), names[2]), (["Kinds", "Sharing"], "Alone"))

    def test_nothing_to_do_is_not_good(self):
        self.assertFalse(run()[0].is_good())
