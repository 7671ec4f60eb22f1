"""The elements of figures: marks along an axis, beside the names of rows."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from markupsafe import Markup, escape

from samestep.experiments.page.axes import AxisScale
from samestep.experiments.page.loaded import Entry, Facet, Loaded
from samestep.experiments.page.rendering import attributes, clean, render

Figure = TypeVar("Figure")
_MOST_NUMBERS = 400
"""Lines of a table below a figure."""
_MEASURED, _PREDICTED = ", measured", ", predicted"
"""The suffixes of two names of numbers that share one column if they are the same in all rows."""


def render_figures(
    loaded: Loaded, name: str, make: Callable[[Facet], Figure | None], content: Mapping[str, object] | None = None
) -> Markup | None:
    """Renders a section with a figure for each facet; None if there is none.

    Args:
        loaded: What the report is about.
        name: The name of the template, which finds the figures as `figures`.
        make: Makes a figure; returns None for a facet that has nothing to show.
        content: What else the template shows.
    """
    figures = [found for facet in loaded.facets() if (found := make(facet)) is not None]
    return render(name, {"figures": figures, **(content or {})}) if figures else None


@dataclasses.dataclass(frozen=True)
class Mark:
    """A mark on an axis or a panel.

    Attributes:
        kind: Its class in the style sheet.
        at: Where it is: a property of style sheets -> percent, or pixels of a margin.
        data: Attributes of the element, such as the number that it stands for; None is left out.
        said: What stands in it.
        name: What its number is, in a table; that of its kind, unless given.
    """

    kind: str
    at: Mapping[str, float]
    data: Mapping[str, object]
    said: str | None = None
    name: str = ""

    @property
    def element(self) -> Markup:
        """Returns the mark on the page, without a template macro, since a page of a thousand rows has ten thousand marks."""
        at = {name: value for name, value in self.at.items() if value or name != "left" or "width" not in self.at}
        style = ";".join(f"{name}:{value:g}{'px' if 'margin' in name else '%'}" for name, value in at.items())
        given = {"class": self.kind, "style": style, **self.data}
        return Markup(f"<i{attributes(given)}>{escape(clean(self.said or ''))}</i>")


@dataclasses.dataclass(frozen=True)
class Line:
    """A line of a figure: a row, its marks along the axis, and their numbers.

    Attributes:
        entry: The row.
        marks: The marks, from `mark`.
        said: The numbers, for the template.
        about: Which part of the row it shows, if the row has several lines.
    """

    entry: Entry
    marks: Sequence[Mark]
    said: Mapping[str, object]
    about: str = ""

    @property
    def title(self) -> str:
        """The name of the row, and the part of it that the line shows."""
        return f"{self.entry.name}, {self.about}" if self.about else self.entry.name

    @property
    def elements(self) -> list[Mark]:
        """Returns the marks for a page: bars of one place and number are one element, with the classes of each."""
        found: dict[object, Mark] = {}
        for each in self.marks:
            words = each.kind.split()
            place = (words[0], *each.at.items(), *each.data.items())
            if place in found:
                both = dict.fromkeys((*found[place].kind.split()[:-1], *words))
                each = dataclasses.replace(each, kind=" ".join(both))
            found[place] = each
        return list(found.values())


@dataclasses.dataclass(frozen=True)
class Plot:
    """A figure of lines.

    Attributes:
        alt: What it shows, for readers who cannot see it.
        title: The title above it.
        axis: The axis of all lines.
        unit: The unit of the axis.
        lines: One for each row, or for each part of a row.
        counted: What the numbers of the marks count, such as "bytes".
    """

    alt: str
    title: str
    axis: AxisScale
    unit: str
    lines: Sequence[Line]
    counted: str = ""

    @property
    def numbers(self) -> "Numbers":
        """Returns the numbers of its marks."""
        found = [(line.title, _numbers(line)) for line in self.lines]
        headers = list(dict.fromkeys(name for _, values in found for name in values))
        for name in [name for name in headers if name.endswith(_PREDICTED)]:
            measured = name.removesuffix(_PREDICTED) + _MEASURED
            if all(values.get(name) == values.get(measured) for _, values in found):
                headers.remove(name)
                headers[headers.index(measured)] = both = f"{measured} and predicted"
                found = [(title, values | {both: values.get(measured, "")}) for title, values in found]
        rows = [(title, [values.get(name, "") for name in headers]) for title, values in found]
        return Numbers(headers, rows, self.counted)


@dataclasses.dataclass(frozen=True)
class Numbers:
    """The numbers of a figure, as a table.

    Attributes:
        headers: The names of the numbers of a row.
        rows: The name of each row, and its numbers.
        counted: As of `Plot`.
    """

    headers: Sequence[str]
    rows: Sequence[tuple[str, Sequence[str]]]
    counted: str = ""

    @property
    def is_long(self) -> bool:
        """Whether it would make a page of many runs too large."""
        return len(self.rows) > _MOST_NUMBERS


def _numbers(line: Line) -> dict[str, str]:
    values = [
        (" ".join(filter(None, (mark.name or _NAMES.get(mark.kind.split()[0], mark.kind.split()[-1]), ending))), value)
        for mark in line.marks
        for key, ending in (("data-value", ""), ("data-low", "from"), ("data-high", "to"))
        if (value := mark.data.get(key)) is not None
    ]
    return {name: f"{value:,}" if isinstance(value, int) else f"{value:.6g}" for name, value in values}


_NAMES = {
    "interval": "95 % interval",
    "spread": "windows",
    "dot": "median",
    "expected": "predicted",
    "least": "lower bound",
}
"""First word of the kind of a mark -> the name of its number."""


def mark(
    kind: str,
    axis: AxisScale,
    start: float,
    end: float | None = None,
    data: Mapping[str, object] | None = None,
    name: str = "",
) -> Mark:
    """Places a mark at a value, or from one value to another.

    Args:
        kind: Its class in the style sheet.
        axis: The axis on which it is placed.
        start: The value.
        end: The value where it ends.
        data: As of `Mark`.
        name: As of `Mark`.
    """
    left = axis.place(start)
    wide = {} if end is None else {"width": round(axis.place(end) - left, 2)}
    return Mark(kind, {"left": left, **wide}, data or {}, name=name)
