"""The common parts of figures for a paper: widths, text, a key, and an axis below them."""

import re
from collections.abc import Callable, Sequence
from xml.etree.ElementTree import Element

from samestep.experiments.page.axes import AxisScale
from samestep.experiments.page.drawings.svg import stroke, write
from samestep.experiments.page.paper.helvetica import text_width

UNITS = 108
"""Units of a drawing per inch: text of 12 units is set at 8 points."""
TEXT, SMALL = 12.0, 11.0
"""Sizes of text; the style sheet has the same."""
LINE = 16.0
SWATCH = 14.0


_WIDEST = 1.18
"""The width of the widest substitute font of an SVG viewer, such as DejaVu Sans, as a multiple of Helvetica's."""


def room_for(words: str, size: float, is_bold: bool = False) -> float:
    """Returns how much room to leave for a line of text in any font.

    Args:
        words: The text.
        size: The size of the font.
        is_bold: Whether it is set in the bold font.
    """
    return _WIDEST * text_width(words, size, is_bold)


def broken(name: str, room: float) -> list[str]:
    """Breaks the name of a row between its options if it is too long for a line.

    Args:
        name: A name such as `torch:hybrid+mesh=pipe=2,tensor=2`.
        room: The largest width of a line.
    """
    lines = [""]
    for part in re.split(r"(?=[+ ])", name):
        if lines[-1] and room_for(lines[-1] + part, SMALL) > room:
            lines.append(part.strip())
        else:
            lines[-1] += part
    return lines


def draw_key(
    root: Element, items: Sequence[tuple[str, str]], y: float, width: float, swatch: Callable[[str, float, float], None]
) -> float:
    """Draws the meanings of marks, in as many lines as necessary; returns the y at which the next element can be placed.

    Args:
        root: The drawing.
        items: The kind of each mark, and its meaning.
        y: The middle of the first line.
        width: The width of the drawing.
        swatch: Draws a mark of a kind, given its left edge and its middle.
    """
    x = 0.0
    if any(SWATCH + 6 + room_for(meaning, SMALL) > width for _, meaning in items):
        items = [(kind, meaning.partition(":")[0]) for kind, meaning in items]  # the caption says the rest
    for kind, meaning in items:
        wide = SWATCH + 6 + room_for(meaning, SMALL)
        if x and x + wide > width:
            x, y = 0.0, y + LINE
        swatch(kind, x, y)
        write(root, x + SWATCH + 5, y + 4, meaning, "small")
        x += wide + 14
    return y + LINE if items else y


def draw_axis(root: Element, axis: AxisScale, unit: str, frame: tuple[float, float, float]) -> None:
    """Draws an axis with its ticks and its unit.

    Args:
        root: The drawing.
        axis: The axis.
        unit: The unit below it.
        frame: Its left end, its right end, and its vertical position.
    """
    left, right, y = frame
    stroke(root, "line", [(left, y), (right, y)])
    last = -1e9
    for tick in axis.ticks:
        x = left + axis.place(tick) / 100 * (right - left)
        said, half = axis.spell(tick), room_for(axis.spell(tick), SMALL) / 2
        stroke(root, "line", [(x, y), (x, y + 4)])
        if x - half > last + 3:
            write(root, x, y + 16, said, "muted small middle")
            last = x + half
    write(root, (left + right) / 2, y + 32, unit, "small middle")
