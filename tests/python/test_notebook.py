"""The notebooks in examples/ run from top to bottom."""

import contextlib
import io
import json
import os
import tempfile
import unittest
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


class Notebooks(unittest.TestCase):
    def test_every_notebook_runs(self):
        notebooks = sorted(EXAMPLES.glob("*.ipynb"))
        self.assertTrue(notebooks)
        self.addCleanup(os.chdir, os.getcwd())
        for path in notebooks:
            notebook = json.loads(path.read_text(encoding="utf-8"))
            self.assertEqual(notebook["nbformat"], 4)
            names = {"__name__": "__main__"}
            with tempfile.TemporaryDirectory() as directory:
                os.chdir(directory)
                for number, cell in enumerate(notebook["cells"], 1):
                    self.assertEqual(cell.get("outputs", []), [], "notebooks are kept without outputs")
                    if cell["cell_type"] == "code":
                        code = compile("".join(cell["source"]), f"{path.name}[{number}]", "exec")
                        with contextlib.redirect_stdout(io.StringIO()):
                            exec(code, names)
                os.chdir(EXAMPLES)


if __name__ == "__main__":
    unittest.main()
