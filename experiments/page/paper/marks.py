"""Marks that differ by more than colour: a shape for each framework, a hatch for each part of a bar, a dash for each curve."""

from collections.abc import Iterator
from xml.etree.ElementTree import Element

from samestep.common.workload.declaration import BUILDERS
from samestep.experiments.page.drawings.svg import put, stroke

SIZE = 4.5
"""The distance from the middle of a point to its edge."""
HATCHES = ("", "/", "\\", "|", "-", "x")
"""The hatches of the parts of a bar, in their order."""
_APART = 5.0
"""The distance between two lines of a hatch."""


def point(parent: Element, framework: str, x: float, y: float) -> None:
    """Adds the point of a row: a circle, a square, or a diamond if it belongs to no framework.

    Args:
        parent: The parent of the shape.
        framework: The framework of the row, which the colour follows.
        x: The x of its center.
        y: The y of its center, from the top.
    """
    names, kind = list(BUILDERS), f"mark-{framework}"
    if framework == names[0]:
        put(parent, "circle", kind, cx=x, cy=y, r=SIZE)
    elif framework in names:
        put(parent, "rect", kind, x=x - SIZE, y=y - SIZE, width=2 * SIZE, height=2 * SIZE)
    else:
        ends = [(x, y - SIZE), (x + SIZE, y), (x, y + SIZE), (x - SIZE, y)]
        put(parent, "path", kind, d="M" + "L".join(f"{a:.6g} {b:.6g}" for a, b in ends) + "Z")


def cross(parent: Element, x: float, y: float) -> None:
    """Adds the point of a row that did not take the same step.

    Args:
        parent: The parent of the shape.
        x: The x of its center.
        y: The y of its center, from the top.
    """
    for turn in (1, -1):
        stroke(parent, "missed", [(x - SIZE, y - turn * SIZE), (x + SIZE, y + turn * SIZE)], 2)


def bar(parent: Element, color: str, hatch: str, box: tuple[float, float, float, float]) -> None:
    """Adds a part of a bar.

    Args:
        parent: The parent of the shape.
        color: The name of its variable in the style sheet, without the hyphens.
        hatch: One of HATCHES.
        box: Its left edge, its upper edge, its width and its height.
    """
    x, y, width, height = box
    put(parent, "rect", style=f"fill:var(--{color})", x=x, y=y, width=width, height=height)
    for line in hatched(hatch, box):
        put(parent, "path", style="fill:none;stroke:var(--paper)", d=_path(line), stroke_width=1.0)


def _path(line: tuple[tuple[float, float], tuple[float, float]]) -> str:
    (x, y), (to_x, to_y) = line
    return f"M{x:.5g} {y:.5g}L{to_x:.5g} {to_y:.5g}"


def hatched(
    hatch: str, box: tuple[float, float, float, float]
) -> Iterator[tuple[tuple[float, float], tuple[float, float]]]:
    """Yields the lines of a hatch, each from one edge of a box to another.

    Args:
        hatch: One of HATCHES.
        box: As in `bar`.
    """
    x, y, width, height = box
    if hatch == "|":
        for number in range(1, int(width / _APART) + 1):
            yield (x + number * _APART, y), (x + number * _APART, y + height)
    if hatch == "-":
        yield (x, y + height / 2), (x + width, y + height / 2)
    for up in {"/": (True,), "\\": (False,), "x": (True, False)}.get(hatch, ()):
        for number in range(int((width + height) / _APART) + 1):
            start = number * _APART - height
            first, last = max(0.0, -start), min(height, width - start)
            if last - first > 0.5:
                ends = [(x + start + s, y + (height - s if up else s)) for s in (first, last)]
                yield ends[0], ends[1]
