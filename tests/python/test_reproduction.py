"""The claims of papers from Python."""

import json
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import isonomia


class Reproduce(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.out = Path(directory.name, "out")

    def test_an_item_gives_its_claims_and_its_data(self):
        self.assertIn("fig5", isonomia.papers()["ics20"]["items"])
        result = isonomia.reproduce("ics20", "fig5", out=self.out, quick=True)
        self.assertEqual(list(result["items"]), ["fig5"])
        item = result["items"]["fig5"]
        self.assertEqual(len(item["rows"][0]), len(item["columns"]))
        lines = (self.out / "fig5.csv").read_text().splitlines()
        self.assertEqual(len(lines), 1 + len(item["rows"]), "a header, and every row")
        self.assertEqual(item["provenance"]["version"], isonomia.__version__)
        claims = isonomia.frame(result)
        self.assertTrue({"item", "claim", "paper", "ours", "verdict"} <= set(claims.columns))
        self.assertEqual(sorted(result["files"]), sorted(str(path) for path in self.out.iterdir()))
        self.assertEqual(json.loads((self.out / "fig5.json").read_text()), item)

    def test_what_is_unknown_is_refused(self):
        with self.assertRaisesRegex(isonomia.Error, 'paper "ics21" is unknown .allowed: ics20'):
            isonomia.reproduce("ics21", out=self.out)
        with self.assertRaisesRegex(isonomia.Error, 'ics20 has no item "fig99" .allowed: '):
            isonomia.reproduce("ics20", "fig99", out=self.out)

    def test_ctrl_c_ends_it(self):
        program = f"import isonomia\nprint('begins', flush=True)\nisonomia.reproduce('ics20', out={str(self.out)!r})\n"
        # Whoever runs these tests in the background has SIGINT ignored.
        program = "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n" + program
        with subprocess.Popen(
            [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as child:
            self.assertEqual(child.stdout.readline(), "begins\n")
            child.send_signal(signal.SIGINT)
            try:
                _, complaint = child.communicate(timeout=60)
            finally:
                child.kill()
        self.assertIn("KeyboardInterrupt", complaint)
        self.assertFalse((self.out / "fig15.json").exists(), "it did not go on to the end")


if __name__ == "__main__":
    unittest.main()
