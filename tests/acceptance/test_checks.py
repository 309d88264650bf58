"""The checks of what survives faults find what they are there to find."""

import unittest

from checks import NOTHING, VOLUMES, check_files, check_names
from service import PREFIX


class WhatIsChecked(unittest.TestCase):
    def test_what_is_lost_stale_torn_or_undone_is_found(self):
        def entries(*steps):
            return [entry for step in steps for entry in ({"begins": step["what"], **step}, {"did": step["what"], **step})]

        made = {"what": "write", "file": "1.1", "name": "1.1", "version": 1, "blocks": 2}
        renamed = {"what": "rename", "file": "1.1", "name": "1.1", "to": "b"}
        removed = {"what": "remove", "file": "1.1", "name": "1.1"}
        blocks = [["w0", "1.1", "1", "0"], ["w0", "1.1", "1", "1"]]
        good = {"1.1": blocks}
        self.assertEqual(check_files("w0", entries(made), good), [])
        for log, there in [
            (entries(made), {}),
            (entries(made), {"1.1": blocks[:1]}),
            (entries(made), {"1.1": [blocks[0], ["torn", "x"]]}),
            (entries(made), {"1.1": [blocks[0], ["w1", "1.1", "1", "1"]]}),
            (entries(made, made | {"version": 2}), good),
            (entries(made, renamed), good),
            (entries(made, removed), good),
        ]:
            self.assertNotEqual(check_files("w0", log, there), [], (log, there))
        # Zeros are what a failed write may leave in a striped file, and nowhere else.
        nothing = {"1.1": [NOTHING, blocks[1]]}
        self.assertNotEqual(check_files("w0", entries(made), nothing), [])
        self.assertEqual(check_files("w0", entries(made)[:-1], nothing), [])
        elsewhere = {"1.1": [NOTHING, ["w3", "1.1", "1", "1"]]}
        self.assertNotEqual(check_files("w3", entries(made)[:-1], elsewhere), [])
        # Without an answer it may have been done, or not.
        for there in [good, {"b": blocks}]:
            self.assertEqual(check_files("w0", entries(made, renamed)[:-1], there), [])
        names = entries({"what": "make", "name": f"{PREFIX}/r/a"}, {"what": "rename", "name": f"{PREFIX}/r/a", "to": f"{PREFIX}/r/b"})
        self.assertEqual(check_names(names, {"r": ["b"], "": [*VOLUMES]}), [])
        for found in [{"r": [], "": []}, {"r": ["a"], "": []}, {"r": ["a", "b"], "": []}, {"r": ["b"], "": ["x"]}]:
            self.assertNotEqual(check_names(names, found), [])
