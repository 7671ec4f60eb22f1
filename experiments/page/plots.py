"""What all figures are made of: axes, lines of marks beside a name, and curves. Places are percentages, so they fit any width."""

import dataclasses
import math
import re
from collections.abc import Callable, Iterable, Sequence
from xml.etree.ElementTree import Element

from samestep.experiments.page.loaded import Entry, Facet, Loaded
from samestep.experiments.page.markup import Child, element
from samestep.experiments.text import common_unit, short

MOST_POINTS = 160
"""Of a curve, to be drawn: more than a screen shows."""
_MOST_TICKS = 6
_MOST_RATIO = 8.0
"""Between the largest and the smallest value of a linear axis."""
Place = tuple[float, float]


@dataclasses.dataclass(frozen=True)
class Axis:
    """A scale.

    Attributes:
        low: The value at its start.
        high: The value at its end.
        spell: Writes a value.
        is_log: Whether equal distances are equal ratios.
        at: Where its ticks are; at round values, unless given.
    """

    low: float
    high: float
    spell: Callable[[float], str]
    is_log: bool = False
    at: tuple[float, ...] = ()

    def place(self, value: float) -> float:
        """Where a value is, in percent."""
        (found,) = self.places([value])
        return round(found, 3)

    def places(self, values: Iterable[float]) -> list[float]:
        """Where values are, in percent."""
        if self.is_log:
            start, factor = math.log(self.low), 100 / (math.log(self.high) - math.log(self.low))
            return [factor * (math.log(max(value, self.low)) - start) for value in values]
        start, factor = self.low, 100 / (self.high - self.low)
        return [factor * (value - start) for value in values]

    @property
    def ticks(self) -> list[float]:
        """Values along it."""
        if self.at:
            return list(self.at)
        if self.is_log:
            first, last = math.floor(math.log10(self.low) + 1e-9), math.ceil(math.log10(self.high) - 1e-9)
            step = -(-(last - first) // _MOST_TICKS) or 1
            digits = (1, 2, 5) if last - first <= 2 else (1,)
            found = [digit * 10.0**power for power in range(first, last + 1, step) for digit in digits]
        else:
            step = _round_step((self.high - self.low) / _MOST_TICKS)
            found = [step * number for number in range(math.ceil(self.low / step), math.floor(self.high / step) + 1)]
        return [tick for tick in found if self.low <= tick * (1 + 1e-9) and tick <= self.high * (1 + 1e-9)]


def linear(values: Iterable[float], spell: Callable[[float], str], from_zero: bool = True) -> Axis:
    """An axis on which equal distances are equal differences.

    Args:
        values: What it has to show.
        spell: Writes a value.
        from_zero: Whether it starts at zero, as bars must.
    """
    values = [value for value in values if math.isfinite(value)] or [0.0]
    low, high = (0.0 if from_zero else min(values)), max(values)
    if high <= low:
        high = low + (abs(low) or 1.0)
    margin = 0.02 * (high - low)
    return Axis(low if from_zero else low - margin, high + margin, spell)


def logarithmic(values: Iterable[float], spell: Callable[[float], str]) -> Axis:
    """An axis of whole decades.

    Args:
        values: What it has to show; what is not above zero is left out.
        spell: Writes a value.
    """
    values = [value for value in values if value > 0 and math.isfinite(value)] or [1.0]
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return Axis(10.0**low, 10.0 ** max(high, low + 1), spell, is_log=True)


def fitting(values: Sequence[float], spell: Callable[[float], str]) -> Axis:
    """A linear axis from zero, or a logarithmic one if that would crowd the small values.

    Args:
        values: What it has to show.
        spell: Writes a value.
    """
    positive = [value for value in values if value > 0]
    is_wide = bool(positive) and max(positive) > _MOST_RATIO * min(positive)
    if not is_wide:
        return linear(values, spell)
    return Axis(min(positive) / 1.3, max(positive) * 1.3, spell, is_log=True)


def in_bytes(values: Sequence[float]) -> tuple[Axis, str]:
    """An axis of bytes from zero, and its unit."""
    unit = common_unit(values)
    scale = 1024 ** ("B", "KiB", "MiB", "GiB", "TiB", "PiB").index(unit)
    whole = linear([value / scale for value in values], spell_tick)
    at = tuple(tick * scale for tick in whole.ticks)
    return Axis(whole.low * scale, whole.high * scale, lambda value: spell_tick(value / scale), at=at), unit


def spell_tick(value: float) -> str:
    """A round number: 0, 0.5, 20, 1k, 2.5M."""
    return re.sub(r"\.?0+(?=\D?$)", "", short(value)) if "." in short(value) else short(value)


def _round_step(step: float) -> float:
    """The next 1, 2 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(step))
    return next(digit * power for digit in (1, 2, 5, 10) if digit * power >= step * (1 - 1e-9))


def for_facets(loaded: Loaded, make: Callable[[Facet], Element | None], *above: Child) -> Element | None:
    """A figure for each facet; None if there is none.

    Args:
        loaded: What the report is about.
        make: Makes a figure; None of a facet that has nothing to show.
        *above: What all of them mean.
    """
    figures = [found for facet in loaded.facets() if (found := make(facet)) is not None]
    return element("div", *above, *figures) if figures else None


# --- figures ----------------------------------------------------------------------------------------------------------


def figure(alt: str, title: str, *children: Child, **attributes: object) -> Element:
    """A figure.

    Args:
        alt: What it shows, for those who do not see it.
        title: What stands above it.
        *children: The figure itself.
        **attributes: Of the element.
    """
    return element("figure", element("figcaption", element("h3", title)), *children, aria_label=alt, **attributes)


def meaning(text: str) -> Element:
    """A few sentences on how to read a figure."""
    return element("p", text, class_="meaning")


FRAMEWORKS = (("torch", "PyTorch"), ("tf", "TensorFlow"), ("numpy", "the NumPy oracle"))
"""The colours that mean a framework, for `key`."""


def key(*items: tuple[str, str]) -> Element:
    """What the marks of a figure mean.

    Args:
        *items: The class of a mark, and its meaning.
    """
    parts = [element("li", element("i", class_=f"swatch {kind}"), meaning) for kind, meaning in items]
    return element("ul", *parts, class_="key", aria_label="Key")


@dataclasses.dataclass(frozen=True)
class Line:
    """A line of a figure: a row, its marks along the axis, and what they say.

    Attributes:
        entry: The row.
        marks: From `mark`.
        said: The numbers, as text.
        about: What of the row it is, if it has several lines.
    """

    entry: Entry
    marks: Sequence[Element]
    said: Sequence[Child]
    about: str = ""


def mark(kind: str, axis: Axis, start: float, end: float | None = None, **attributes: object) -> Element:
    """A mark at a value, or from one value to another.

    Args:
        kind: Its class in the style sheet.
        axis: Places it.
        start: The value.
        end: The value where it ends.
        **attributes: Of the element, such as the number that it stands for.
    """
    left = axis.place(start)
    style = f"left:{left}%" + ("" if end is None else f";width:{round(axis.place(end) - left, 3)}%")
    return element("i", class_=kind, style=style, **attributes)


def lines(axis: Axis, unit: str, rows: Sequence[Line]) -> Element:
    """Marks beside names, one line a row, along a common axis.

    Args:
        axis: Of all lines.
        unit: Of the axis.
        rows: The lines.
    """
    ticks = [element("i", axis.spell(tick), style=f"left:{axis.place(tick)}%") for tick in axis.ticks]
    grid = [element("i", style=f"left:{axis.place(tick)}%") for tick in axis.ticks]
    ruler = element("div", *ticks, class_="ruler", aria_hidden="true")
    title = element("div", unit, class_="unit")
    return element(
        "div",
        element(
            "div",
            element("div", *grid, class_="grid", aria_hidden="true"),
            *map(_line, rows),
            class_="lines",
            role="list",
        ),
        ruler,
        title,
        class_="plot",
    )


def _line(row: Line) -> Element:
    name = element("span", row.entry.name, class_=f"name {row.entry.framework}")
    append = [element("small", row.about)] if row.about else []
    return element(
        "div",
        element("span", name, *append, class_="who"),
        element("span", *row.marks, class_="track", aria_hidden="true"),
        element("span", *row.said, class_="said"),
        role="listitem",
        data_row=row.entry.key,
    )


# --- curves -----------------------------------------------------------------------------------------------------------


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
    ends = {"data_x": f"{across.low!r} {across.high!r}", "data_y": f"{up.low!r} {up.high!r}"}
    return element(
        "div",
        element("div", units[1], class_="unit up"),
        element("div", *left, class_="scale", aria_hidden="true"),
        element(
            "div", drawing, element("div", *told, *dots, class_="told", aria_hidden="true"), class_="frame", **ends
        ),
        element("div", *below, class_="ruler", aria_hidden="true"),
        element("div", units[0], class_="unit across"),
        class_="panel",
    )


def dot(across: Axis, up: Axis, point: Place, kind: str, said: str | None = None, **attributes: object) -> Element:
    """A dot on a panel.

    Args:
        across: Places the first number of the point.
        up: Places the second.
        point: Where it is.
        kind: Its class in the style sheet.
        said: What stands beside it.
        **attributes: Of the element.
    """
    style = f"left:{across.place(point[0])}%;bottom:{up.place(point[1])}%"
    return element("i", said, class_=f"point {kind}", style=style, **attributes)


def _rule(place: float, kind: str) -> Element:
    return element("path", d=f"M0 {100 - place:.4g}H100", class_=kind)
