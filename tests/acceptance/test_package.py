"""The Python package, as it was installed by `scripts/setup acceptance`: every file of tests/python."""

import subprocess
import unittest
from pathlib import Path

import service

TESTS = Path(__file__).resolve().parents[1] / "python"


class Package(unittest.TestCase):
    """A method for each file is added below."""

    def run_file(self, name):
        program = Path(service.isonomia())
        python = program.parents[1] / "venv/bin/python"
        self.assertTrue(python.exists(), f"{python} is missing: run `scripts/setup acceptance`")
        environment = service.clean_environment() | {"ISONOMIA_PROGRAM": str(program), "MPLBACKEND": "Agg"}
        done = subprocess.run(
            [python, "-m", "unittest", "-v", name],
            cwd=TESTS,
            env=environment,
            capture_output=True,
            text=True,
            timeout=service.TEST_S,
        )
        self.assertEqual(done.returncode, 0, done.stderr)


for path in sorted(TESTS.glob("test_*.py")):
    setattr(Package, path.stem, lambda self, name=path.stem: self.run_file(name))
