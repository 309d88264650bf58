"""The package keeps to its type annotations."""

import subprocess
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class Types(unittest.TestCase):
    def test_mypy_finds_nothing(self):
        command = [sys.executable, "-m", "mypy", "--cache-dir", "/dev/null"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main()
