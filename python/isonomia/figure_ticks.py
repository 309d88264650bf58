"""Labels along the axes of figures: each position has one if there are few, and none touches another."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.text import Text

Which = Literal["x", "y"]
#: Left, bottom, right and top, in pixels.
Box = tuple[float, float, float, float]

#: As many positions have a label each, whatever that takes.
EACH_MAX = 12
#: Points: what is free between labels along a line of writing, and what is between lines.
_BESIDE_PT, _BETWEEN_PT = 3.0, 0.0
#: A name has at most so many lines.
_LINES_MAX = 3
_SLANTED, _UPRIGHT = 35, 90
_POINTS_PER_INCH = 72


def name_positions(axes: Axes, names: Sequence[str]) -> None:
    """Names at 0, 1, 2, … along the x axis: in one line, in several, slanted, or upright, the first that fits for all."""
    tries = [(list(names), 0)]
    tries += [([_wrapped(name, lines) for name in names], 0) for lines in range(2, _LINES_MAX + 1)]
    for texts, angle in [*tries, (list(names), _SLANTED), (list(names), _UPRIGHT)]:
        axes.set_xticks(range(len(texts)), texts)
        _turn(axes, angle)
        if not touching(axes, "x"):
            return


def number_positions(axes: Axes, positions: Sequence[float], write: Callable[[float], str]) -> None:
    """Numbers at ascending positions of the x axis: all if they are few and fit in some direction, or those that fit level."""
    from matplotlib import ticker

    axes.xaxis.set_minor_locator(ticker.NullLocator())
    texts = [write(position) for position in positions]
    for angle in (0, _SLANTED, _UPRIGHT) if len(positions) <= EACH_MAX else ():
        axes.set_xticks(positions, texts)
        _turn(axes, angle)
        if not touching(axes, "x"):
            return
    axes.set_xticks(positions, texts)
    _turn(axes, 0)
    shown = _some(axes)
    axes.set_xticks([positions[at] for at in shown], [texts[at] for at in shown])


def thin_out(axes: Axes, which: Which, locators: Sequence[Any]) -> None:
    """Takes the first of the locators whose labels do not touch, or the last."""
    axis = axes.xaxis if which == "x" else axes.yaxis
    for locator in locators:
        axis.set_major_locator(locator)
        if not touching(axes, which):
            return


def touching(axes: Axes, which: Which) -> list[tuple[str, str]]:
    """Pairs of labels along an axis that lie on each other, or nearly do."""
    labels, boxes = _laid_out(axes, which)
    return [
        (labels[one].get_text(), labels[other].get_text())
        for other in range(len(labels))
        for one in range(other)
        if _meet(boxes[one], boxes[other], axes)
    ]


def _some(axes: Axes) -> list[int]:
    """Which labels of the x axis can stand without touching, the last one among them."""
    labels, boxes = _laid_out(axes, "x")
    shown: list[int] = []
    for at in reversed(range(len(labels))):
        if not any(_meet(boxes[at], boxes[other], axes) for other in shown):
            shown.append(at)
    return shown[::-1]


def _laid_out(axes: Axes, which: Which) -> tuple[list[Text], list[Box]]:
    """The labels that are seen, in their order, and their boxes, turned so that the writing is level."""
    from matplotlib.transforms import Affine2D

    axis = axes.xaxis if which == "x" else axes.yaxis
    figure: Any = axes.figure
    # Where labels are follows from the layout of the whole figure.
    figure.draw_without_rendering()
    low, high = sorted(axis.get_view_interval())
    labels, boxes = [], []
    for position, label in zip(axis.get_majorticklocs(), axis.get_majorticklabels()):
        if not low <= position <= high or not label.get_text():
            continue
        angle = label.get_rotation()
        anchor = label.get_transform().transform(label.get_position())
        label.set_rotation(0)
        level = label.get_window_extent()
        label.set_rotation(angle)
        x, y = Affine2D().rotate_deg(-angle).transform(anchor) - anchor
        labels.append(label)
        boxes.append((level.x0 + x, level.y0 + y, level.x1 + x, level.y1 + y))
    return labels, boxes


def _meet(one: Box, other: Box, axes: Axes) -> bool:
    figure: Any = axes.figure
    pixels: float = figure.dpi / _POINTS_PER_INCH
    beside, between = _BESIDE_PT * pixels, _BETWEEN_PT * pixels
    is_beside = one[0] >= other[2] + beside or other[0] >= one[2] + beside
    is_above = one[1] >= other[3] + between or other[1] >= one[3] + between
    return not (is_beside or is_above)


def _turn(axes: Axes, angle: int) -> None:
    for label in axes.get_xticklabels():
        # Turned around its end, which is then at its position.
        label.set_rotation(angle)
        label.set_rotation_mode("anchor")
        label.set_horizontalalignment("right" if angle else "center")
        label.set_verticalalignment("center" if angle == _UPRIGHT else "top")


def _wrapped(name: str, lines: int) -> str:
    """The name in at most so many lines, as short ones as its words allow."""
    for width in range(max(1, len(name) // lines), len(name)):
        parts = textwrap.wrap(name, width, break_long_words=False, break_on_hyphens=False)
        if len(parts) <= lines:
            return "\n".join(parts)
    return name
