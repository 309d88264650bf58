"""What is in a figure can be read: no label lies on another, no line hides another, and what is cut off is said."""

import itertools
import unittest

import matplotlib

matplotlib.use("Agg")

import numpy  # noqa: E402
from matplotlib import colors, pyplot  # noqa: E402
from matplotlib.path import Path  # noqa: E402
from matplotlib.transforms import Affine2D  # noqa: E402

from isonomia import figures  # noqa: E402


def axis(column, scale="linear"):
    return {"column": column, "label": column, "scale": scale}


def chart(kind, x_scale="linear", y_scale="linear", **other):
    plain = {"name": "", "title": "gain", "kind": kind, "by": "line", "only": [], "bins": None, "paper": []}
    return {**plain, "x": axis("place", x_scale), "y": axis("gain", y_scale), **other}


def rows(places, gains=(1.0,), line="one"):
    """A row for each place and gain, which are of several seeds."""
    return [
        {"place": str(place), "gain": str(gain), "seed": str(seed), "line": line}
        for place in places
        for seed, gain in enumerate(gains)
    ]


def corners(label):
    """Where the corners of the writing are, in pixels."""
    angle, anchor = label.get_rotation(), label.get_transform().transform(label.get_position())
    label.set_rotation(0)
    box = label.get_window_extent()
    label.set_rotation(angle)
    return Path(Affine2D().rotate_deg_around(*anchor, angle).transform(box.corners()[[0, 1, 3, 2, 0]]), closed=True)


def labels(axes, which):
    axes.figure.draw_without_rendering()
    found = axes.get_xticklabels() if which == "x" else axes.get_yticklabels()
    limits = sorted(axes.get_xlim() if which == "x" else axes.get_ylim())
    at = 0 if which == "x" else 1
    return [label for label in found if label.get_text() and limits[0] <= label.get_position()[at] <= limits[1]]


CROWDED = {
    "one name wider than its place": (rows(["D/D/1, two at a time", "M/D/1", "M/M/1", "M/H2/1"]), chart("bars")),
    "wide names": (rows(["processor-sharing", "fair-finish-and-accounts", "fcfs", "history-accounts-0.2"]), chart("bars")),
    "as many names as stand": (rows([f"a scheme of number {at}" for at in range(8)]), chart("bars")),
    "many names beside": (rows([f"scheme {at}" for at in range(40)]), chart("bars")),
    "wide numbers below": (rows([f"scheme {at}" for at in range(9)], (-1_900_000.0, 1_900_001.0)), chart("bars")),
    "powers of two": (rows([8, 16, 64, 512, 2_048, 4_096]), chart("lines", "log2")),
    "large powers of ten": (rows([25 * 10**at for at in range(4, 9)]), chart("lines", "log10")),
    "near each other": (rows([0.05, 0.1, 0.3, 0.8]), chart("lines")),
    "all of a scale": (rows(range(1, 13)), chart("lines")),
    "many powers": (rows([2**at for at in range(30)]), chart("lines", "log2")),
    "many places": (rows(range(1_000_000, 1_000_100)), chart("lines")),
    "losses and gains": (rows([1], [-1.0]) + rows([2], [30.0]), chart("lines", y_scale="symlog")),
    "the paper's beyond": (rows([1, 2, 32]), chart("lines", "log2", paper=[{"x": 128, "y": 2.0, "of": None}])),
}


class Layout(unittest.TestCase):
    def tearDown(self):
        pyplot.close("all")

    def test_no_label_along_an_axis_lies_on_another(self):
        for name, (data, drawn) in CROWDED.items():
            axes = figures.draw(data, drawn)
            for which in "xy":
                with self.subTest(name, axis=which):
                    found = labels(axes, which)
                    self.assertGreaterEqual(len(found), 2)
                    drawn_at = [(label.get_text(), corners(label)) for label in found]
                    for (one, box), (other, other_box) in itertools.combinations(drawn_at, 2):
                        self.assertFalse(box.intersects_path(other_box, filled=True), f"{one!r} and {other!r}")

    def test_each_of_few_places_has_its_label(self):
        for name, (data, drawn) in CROWDED.items():
            places = {row["place"] for row in data} | {str(mark["x"]) for mark in drawn["paper"]}
            if len(places) > 12:
                continue
            with self.subTest(name):
                which = "y" if len(places) > 8 and drawn["kind"] == "bars" else "x"
                texts = [label.get_text().replace("\n", " ") for label in labels(figures.draw(data, drawn), which)]
                numbers = drawn["kind"] == "lines"
                expected = {figures._number(float(place)) for place in places} if numbers else places
                self.assertEqual(sorted(texts), sorted(expected))

    def test_a_name_wider_than_its_place_has_several_lines(self):
        found = labels(figures.draw(*CROWDED["one name wider than its place"]), "x")
        self.assertEqual([label.get_text().count("\n") for label in found], [1, 0, 0, 0])
        self.assertEqual({label.get_rotation() for label in found}, {0})

    def test_what_is_beyond_the_axis_is_written_at_the_edge(self):
        # Most gain some per cent, one loses much with a wide interval, and one hundreds.
        data = rows([f"scheme {at}" for at in range(30)], (8.0, 12.0))
        data += rows(["set10"], (-60.0, -72.0, -100.0)) + rows(["gift"], (-260.0, -282.0))
        axes = figures.draw(data, chart("bars"))
        (container,) = (each for each in axes.containers if hasattr(each, "errorbar"))
        whiskers = container.errorbar[2][0].get_segments()
        low, high = axes.get_xlim()
        texts = [text.get_text() for text in axes.texts]
        cut = 0
        for bar, whisker in zip(container, whiskers):
            ends = [bar.get_width(), *whisker[:, 0]]
            if min(ends) < low or max(ends) > high:
                cut += 1
                half = (whisker[1, 0] - whisker[0, 0]) / 2
                self.assertIn(f"{bar.get_width():.0f} ± {half:.0f}", texts)
        self.assertEqual((cut, len(texts)), (1, 1))

    def test_lines_that_lie_on_each_other_are_all_seen(self):
        names = ["one", "two", "three", "four"]
        for places in (6, 20):
            data = [row for name in names for row in rows(range(1, places + 1), (2.0, 2.001), line=name)]
            # Another one far off, so that these are as one.
            data += rows(range(1, places + 1), (9.0,), line="off")
            axes = figures.draw(data, chart("lines"))
            axes.figure.set_dpi(300)
            axes.figure.canvas.draw()
            pixels = numpy.asarray(axes.figure.canvas.buffer_rgba())[:, :, :3].astype(int)
            height, box = len(pixels), axes.get_window_extent()
            inside = pixels[height - int(box.y1) : height - int(box.y0), int(box.x0) : int(box.x1)]
            seen = {
                name: int((abs(inside - [255 * part for part in colors.to_rgb(colour)]).max(axis=2) < 25).sum())
                for name, colour in zip(names, figures._COLOURS)
            }
            with self.subTest(places=places):
                self.assertGreater(min(seen.values()), 0.25 * max(seen.values()), seen)

    def test_what_has_no_place_on_a_logarithmic_axis_is_no_obstacle(self):
        data = rows([1, 2, 3], (0.0, 0.0)) + rows([1, 2, 3], (-1.0, 3.0), line="two")
        low, _ = figures.draw(data, chart("lines", y_scale="log10")).get_ylim()
        self.assertGreater(low, 0)

    def test_a_line_alone_is_drawn_through(self):
        data = rows(range(1, 7), (2.0,)) + rows(range(1, 7), (3.0,), line="two")
        self.assertEqual({line.get_linestyle() for line in figures.draw(data, chart("lines")).lines}, {"-"})


if __name__ == "__main__":
    unittest.main()
