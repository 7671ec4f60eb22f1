"""Curves in a frame with two axes."""

from collections.abc import Sequence
from xml.etree.ElementTree import Element

from samestep.experiments.page.axes import Axis
from samestep.experiments.page.markup import element

MOST_POINTS = 160
"""Of a curve, to be drawn: more than a screen shows."""
Place = tuple[float, float]
"""Values along both axes."""


def thin(points: Sequence[Place], most: int = MOST_POINTS) -> list[Place]:
    """The points that shape a curve: of each stretch the lowest and the highest.

    Args:
        points: In order.
        most: How many are left.
    """
    if len(points) <= most:
        return list(points)
    stretch = 2 * len(points) / most
    kept: list[Place] = []
    for number in range(most // 2):
        part = points[round(number * stretch) : round((number + 1) * stretch)]
        kept += sorted({min(part, key=lambda p: p[1]), max(part, key=lambda p: p[1])})
    return kept


def curve(
    across: Axis, up: Axis, points: Sequence[Place | None], kind: str, title: str, **attributes: object
) -> Element:
    """A curve; where a point is missing it is broken.

    Args:
        across: Places the first number of a point.
        up: Places the second.
        points: In order; None breaks the curve.
        kind: Its class in the style sheet.
        title: What it is.
        **attributes: Of the element.
    """
    there = [point for point in points if point is not None]
    places = zip(across.places(x for x, _ in there), up.places(y for _, y in there), strict=True)
    path, pen = [], "M"
    for point in points:
        if point is not None:
            x, y = next(places)
            path.append(f"{pen}{x:.4g} {100 - y:.4g}")
        pen = "M" if point is None else "L"
    return element("path", element("title", title), d="".join(path), class_=f"curve {kind}", **attributes)


def panel(
    across: Axis,
    up: Axis,
    units: tuple[str, str],
    alt: str,
    curves: Sequence[Element],
    levels: Sequence[tuple[float, str]] = (),
    dots: Sequence[Element] = (),
) -> Element:
    """Curves in a frame with two axes.

    Args:
        across: The horizontal axis.
        up: The vertical axis.
        units: Of either.
        alt: What it shows.
        curves: From `curve`.
        levels: Horizontal lines, each with its meaning.
        dots: From `dot`.
    """
    grid = [_rule(up.place(tick), "rule") for tick in up.ticks] + [
        _rule(up.place(level), "level") for level, _ in levels
    ]
    drawing = element(
        "svg", element("title", alt), *grid, *curves, viewBox="0 0 100 100", preserveAspectRatio="none", role="img"
    )
    told = [element("b", meaning, style=f"bottom:{up.place(level)}%") for level, meaning in levels]
    left = [element("i", up.spell(tick), style=f"bottom:{up.place(tick)}%") for tick in up.ticks]
    below = [element("i", across.spell(tick), style=f"left:{across.place(tick)}%") for tick in across.ticks]
    return element(
        "div",
        element("div", units[1], class_="unit up"),
        element("div", *left, class_="scale", aria_hidden="true"),
        element(
            "div",
            drawing,
            element("div", *told, *dots, class_="told", aria_hidden="true"),
            class_="frame",
            **across.described("x"),
            **up.described("y"),
        ),
        element("div", *below, class_="ruler", aria_hidden="true"),
        element("div", units[0], class_="unit across"),
        class_="panel",
    )


def dot(
    across: Axis, up: Axis, point: Place, kind: str, said: str | None = None, aside: int = 0, **attributes: object
) -> Element:
    """A dot on a panel.

    Args:
        across: Places the first number of the point.
        up: Places the second.
        point: Where it is.
        kind: Its class in the style sheet.
        said: What stands beside it.
        aside: How many pixels it stands right of its place, so that it hides no other mark.
        **attributes: Of the element, such as the number that it stands for.
    """
    style = f"left:{across.place(point[0])}%;bottom:{up.place(point[1])}%;margin-left:{aside}px"
    return element("i", said, class_=f"point {kind}", style=style, **attributes)


def whisker(across: Axis, up: Axis, at: float, ends: Place, kind: str, aside: int = 0) -> Element:
    """A vertical line on a panel, from one value to another.

    Args:
        across: Places `at`.
        up: Places the ends.
        at: Where it stands.
        ends: The lower value and the higher.
        kind: Its class in the style sheet.
        aside: As for `dot`.
    """
    low, high = map(up.place, ends)
    style = f"left:{across.place(at)}%;bottom:{low}%;height:{round(high - low, 3)}%;margin-left:{aside}px"
    return element("i", class_=f"whisker {kind}", style=style, data_low=ends[0], data_high=ends[1])


def _rule(place: float, kind: str) -> Element:
    return element("path", d=f"M0 {100 - place:.4g}H100", class_=kind)
