"""The runner's own count: what is skipped is told with its reason, and has not passed."""

import importlib.machinery
import importlib.util
import io
import os
import unittest
from pathlib import Path
from unittest import mock

LOADER = importlib.machinery.SourceFileLoader("acceptance_run", str(Path(__file__).with_name("run")))


def summary(required):
    """The last lines of a run of one test that passes and one that cannot run, and whether all is well."""

    class Two(unittest.TestCase):
        def test_here(self):
            pass

        def test_elsewhere(self):
            self.skipTest("there is no\ndevice")

    runner = importlib.util.module_from_spec(importlib.util.spec_from_loader(LOADER.name, LOADER))
    LOADER.exec_module(runner)
    suite = unittest.defaultTestLoader.loadTestsFromTestCase(Two)
    with mock.patch.dict(os.environ, {"ISONOMIA_REQUIRE_ALL_TESTS": required}):
        result = unittest.TextTestRunner(stream=io.StringIO(), verbosity=2, resultclass=runner.Outcome).run(suite)
    return result.summary().splitlines(), result.wasSuccessful()


class Counting(unittest.TestCase):
    def test_a_skipped_test_is_told_and_has_not_passed(self):
        (reason, counts), well = summary("")
        self.assertRegex(reason, r"^skipped: .*Two\.test_elsewhere: there is no device$")
        self.assertEqual((counts, well), ("1 passed, 0 failed, 1 skipped", True))

    def test_where_all_tests_are_required_it_fails(self):
        self.assertEqual(summary("1"), (["1 passed, 1 failed, 0 skipped"], False))
