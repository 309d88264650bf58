"""Figures of reproduced papers show what is in their CSV, and the paper's values."""

import contextlib
import io
import json
import tempfile
import unittest
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot  # noqa: E402

import isonomia  # noqa: E402
from isonomia import figures  # noqa: E402


def axis(column, label="", scale="linear"):
    return {"column": column, "label": label, "scale": scale}


def chart(**other):
    plain = {"name": "", "title": "gain", "kind": "lines", "by": None, "only": [], "bins": None, "paper": []}
    return {**plain, "x": axis("nodes", "nodes"), "y": axis("gain", "gain [%]"), **other}


ROWS = [
    {"nodes": nodes, "seed": seed, "default": default, "gain": gain}
    for nodes, seed, default, gain in [
        ("64", "1", "random", "1"),
        ("64", "2", "random", "3"),
        ("2048", "1", "random", "-4"),
        ("2048", "2", "random", "-4"),
        ("64", "1", "turns", "10"),
    ]
]


class Figures(unittest.TestCase):
    def tearDown(self):
        pyplot.close("all")

    def test_an_interval_by_hand(self):
        self.assertEqual(figures.interval([5.0]), (5.0, 0.0))
        mean, half = figures.interval([1.0, 2.0, 3.0])
        self.assertEqual((mean, round(half, 6)), (2.0, round(4.303 / 3**0.5, 6)))

    def test_intervals_of_many_values_are_wider_than_normal_ones(self):
        # Forty values of deviation 1: by R's qt(0.975, 39), over the root of forty.
        values = [1.0, -1.0] * 20
        deviation = (40 / 39) ** 0.5
        self.assertAlmostEqual(figures.interval(values)[1], 2.022691 * deviation / 40**0.5, places=5)

    def test_lines_have_means_intervals_and_the_papers_values(self):
        paper = [{"x": 2048, "y": 40.0, "of": None}, {"x": None, "y": 5.0, "of": "random"}]
        axes = figures.draw(ROWS, chart(by="default", x=axis("nodes", "nodes", "log2"), paper=paper))
        line, _, (whiskers,) = axes.containers[0]
        self.assertEqual(list(line.get_ydata()), [2.0, -4.0])
        low, high = whiskers.get_segments()[0][:, 1]
        self.assertAlmostEqual((high - low) / 2, 12.706, places=3)
        self.assertIn([40.0], [list(each.get_ydata()) for each in axes.lines])
        self.assertIn([5.0, 5.0], [list(each.get_ydata()) for each in axes.lines])
        self.assertEqual([text.get_text() for text in axes.get_xticklabels()], ["64", "2048"])
        labels = [text.get_text() for text in axes.figure.legends[0].get_texts()]
        self.assertEqual(labels, ["random", "turns", "paper"])

    def test_losses_are_bars_below_zero(self):
        axes = figures.draw(ROWS, chart(kind="bars", only=[["default", ["random"]]]))
        self.assertEqual([bar.get_height() for bar in axes.patches], [2.0, -4.0])
        self.assertLess(axes.get_ylim()[0], -4.0)

    def test_bars_stand_in_the_middle_of_their_place_and_without_an_interval_have_no_whisker(self):
        axes = figures.draw(ROWS, chart(kind="bars", by="default"))
        centres = [round(bar.get_x() + bar.get_width() / 2, 9) for bar in axes.patches]
        self.assertEqual(centres, [-0.2, 1.0, 0.2], "both at 64, one at 2048")
        whiskers = [container.errorbar for container in axes.containers if hasattr(container, "errorbar")]
        self.assertIsNone(whiskers[1], "one seed")

    def test_a_bar_much_longer_than_the_others_is_cut_off(self):
        rows = [{"nodes": f"scheme {at}", "gain": str(at - 300 * (at == 9))} for at in range(12)]
        axes = figures.draw(rows, chart(kind="bars"))
        self.assertEqual(axes.get_xlim()[0], -1.25 * 11)
        self.assertIn("-291", [text.get_text() for text in axes.texts])
        self.assertEqual(axes.patches[9].get_width(), -291.0)
        rows = [{"nodes": f"scheme {at}", "gain": str(at)} for at in range(12)]
        self.assertEqual(len(figures.draw(rows, chart(kind="bars")).texts), 0)

    def test_nothing_touches_the_edge_of_a_logarithmic_axis(self):
        rows = [{"nodes": "1", "gain": "60"}, {"nodes": "2", "gain": "3"}]
        low, high = figures.draw(rows, chart(y=axis("gain", "", "symlog"))).get_ylim()
        self.assertTrue(low == 0 and 60 < high < 100, (low, high))
        rows[1]["gain"] = "-3"
        low, _ = figures.draw(rows, chart(y=axis("gain", "", "symlog"))).get_ylim()
        self.assertLess(low, -3)

    def test_what_is_not_the_papers_is_called_by_its_name(self):
        paper = [{"x": None, "y": 5.0, "of": None, "what": "by chance"}, {"x": None, "y": 7.0, "of": None}]
        axes = figures.draw(ROWS, chart(by="default", paper=paper))
        labels = [text.get_text() for text in axes.figure.legends[0].get_texts()]
        self.assertEqual(labels, ["random", "turns", "by chance", "paper"])
        dashes = {line.get_ydata()[0]: line.get_linestyle() for line in axes.lines if len(line.get_ydata()) == 2}
        self.assertEqual((dashes[5.0], dashes[7.0]), ("--", ":"))

    def test_many_names_stand_beside_bars_that_lie(self):
        rows = [{"nodes": f"scheme {at}", "gain": str(at)} for at in range(12)]
        axes = figures.draw(rows, chart(kind="bars", paper=[{"x": "scheme 3", "y": 4.0, "of": None}]))
        self.assertEqual([bar.get_width() for bar in axes.patches], list(range(12)))
        self.assertEqual([text.get_text() for text in axes.get_yticklabels()][3], "scheme 3")
        self.assertIn([4.0, 4.0], [list(line.get_xdata()) for line in axes.lines])

    def test_rows_fall_into_bins_and_seeds_are_averaged_first(self):
        rows = [
            {"nodes": x, "seed": seed, "gain": gain}
            for x, seed, gain in [("0.2", "1", "1"), ("0.4", "1", "3"), ("0.6", "2", "6"), ("1.5", "1", "9"), ("7", "1", "0")]
        ]
        line, _, _ = figures.draw(rows, chart(bins=[1.0, 4.0])).containers[0]
        self.assertEqual((list(line.get_xdata()), list(line.get_ydata())), ([0.5, 1.5], [4.0, 9.0]))

    def test_a_row_without_a_value_is_not_drawn(self):
        rows = [*ROWS, {"nodes": "64", "seed": "2", "default": "turns", "gain": ""}]
        self.assertEqual([bar.get_height() for bar in figures.draw(rows, chart(kind="bars", by="default")).patches], [2.0, -4.0, 10.0])

    def test_nothing_to_draw_is_said(self):
        with self.assertRaisesRegex(isonomia.Error, "chart 'gain': no row is left .columns: nodes, seed"):
            figures.draw(ROWS, chart(only=[["default", ["fifo"]]]))

    def test_the_command_draws_what_a_reproduction_left(self):
        with tempfile.TemporaryDirectory() as directory:
            isonomia.reproduce("gift", "fig6", out=directory, quick=True)
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                figures.main([directory, "--format", "svg"])
            self.assertEqual(printed.getvalue().split(), [str(Path(directory, "fig6.svg"))])
            self.assertIn("part of each target", Path(directory, "fig6.svg").read_text())
            self.assertEqual(json.loads(Path(directory, "fig6.json").read_text())["charts"][0]["name"], "")
            with self.assertRaises(SystemExit), contextlib.redirect_stderr(io.StringIO()) as complaint:
                figures.main([str(Path(directory, "nothing"))])
            self.assertIn("no item is here", complaint.getvalue())


if __name__ == "__main__":
    unittest.main()
