"""Curves in a frame with two axes."""

import collections
import dataclasses
import functools
import itertools
import operator
from collections.abc import Mapping, Sequence

from samestep.experiments.page.axes import AxisScale
from samestep.experiments.page.plots import Mark

MOST_POINTS = 160
"""The most points of a drawn curve, more than a screen can show."""
Place = tuple[float, float]
"""Values along both axes."""
_HEIGHT = operator.itemgetter(1)
"""Returns the value of a place along the vertical axis."""
FRAME = 1000
"""The units of a panel in each direction: a unit is less than a pixel, and whole numbers keep a page of many curves small."""


def thin(points: Sequence[Place], most: int = MOST_POINTS) -> list[Place]:
    """Returns the points that shape a curve: the lowest and the highest of each section.

    Args:
        points: The points, in order.
        most: The most points to return.
    """
    if len(points) <= most:
        return list(points)
    stretch = 2 * len(points) / most
    kept: list[Place] = []
    for number in range(most // 2):
        part = points[round(number * stretch) : round((number + 1) * stretch)]
        kept += sorted({min(part, key=_HEIGHT), max(part, key=_HEIGHT)})
    return kept


@dataclasses.dataclass(frozen=True)
class PlottedCurve:
    """A curve on a panel.

    Attributes:
        kind: Its class in the style sheet.
        title: The title of the curve, as a tooltip.
        parts: Its points between gaps, measured from the left and from the top, in units of FRAME.
        data: Attributes of the element.
    """

    kind: str
    title: str
    parts: Sequence[Sequence[tuple[int, int]]]
    data: Mapping[str, object]

    @functools.cached_property
    def path(self) -> str:
        """The path in SVG: the first point of each part, then the move from each point to the next."""
        return "".join(map(_path, self.parts))


@dataclasses.dataclass(frozen=True)
class Panel:
    """Curves in a frame with two axes.

    Attributes:
        across: The horizontal axis.
        up: The vertical axis.
        units: The units of each axis.
        alt: A description, for readers who cannot see it.
        curves: The curves, from `curve`.
        levels: Horizontal lines, each with its meaning.
        dots: The dots and lines, from `dot` and `whisker`.
    """

    across: AxisScale
    up: AxisScale
    units: tuple[str, str]
    alt: str
    curves: Sequence[PlottedCurve]
    levels: Sequence[tuple[float, str]] = ()
    dots: Sequence[Mark] = ()

    @property
    def shared(self) -> dict[str, int]:
        """The paths that several curves share, because their rows took the same step, with a number for each."""
        times = collections.Counter(each.path for each in self.curves)
        return {path: place for place, path in enumerate(path for path, number in times.items() if number > 1)}


def curve(
    axes: tuple[AxisScale, AxisScale], parts: Sequence[Sequence[Place]], kind: str, title: str, row: str | None = None
) -> PlottedCurve:
    """Draws a curve.

    Args:
        axes: The axes of the first and of the second number of a point.
        parts: The points of each part, in order; between two parts is a gap.
        kind: Its class in the style sheet.
        title: The title of the curve, as a tooltip.
        row: The key of its row.
    """
    across, up = axes
    places = (zip(across.places(x for x, _ in part), up.places(y for _, y in part), strict=True) for part in parts)
    drawn = [[(round(x * FRAME / 100), round((100 - y) * FRAME / 100)) for x, y in part] for part in places]
    return PlottedCurve(kind, title, drawn, {"data-row": row})


def _path(part: Sequence[tuple[int, int]]) -> str:
    ways = [(x - before_x, y - before_y) for (before_x, before_y), (x, y) in itertools.pairwise(part)]
    rest = " ".join(f"{x} {y}" for x, y in ways).replace(" -", "-")
    return f"M{part[0][0]} {part[0][1]}" + (f"l{rest}" if rest else "")


def dot(
    axes: tuple[AxisScale, AxisScale], point: Place, kind: str, aside: int = 0, data: Mapping[str, object] | None = None
) -> Mark:
    """Places a dot on a panel.

    Args:
        axes: The axes of the first and of the second number of the point.
        point: The values that it shows.
        kind: Its class in the style sheet.
        aside: How many pixels it is drawn to the right of its place, so it hides no other mark.
        data: As in `Mark`.
    """
    across, up = axes
    at = {"left": across.place(point[0]), "bottom": up.place(point[1]), "margin-left": aside}
    return Mark(f"point {kind}", at, data or {})


def whisker(axes: tuple[AxisScale, AxisScale], at: float, ends: Place, kind: str, aside: int = 0) -> Mark:
    """Places a vertical line on a panel, from one value to another.

    Args:
        axes: The axes of `at` and of the ends.
        at: The horizontal value.
        ends: The lower and the higher value.
        kind: Its class in the style sheet.
        aside: As in `dot`.
    """
    across, up = axes
    low, high = map(up.place, ends)
    place = {"left": across.place(at), "bottom": low, "height": round(high - low, 2), "margin-left": aside}
    return Mark(f"whisker {kind}", place, {"data-low": ends[0], "data-high": ends[1]})
