"""The elements of figures: marks along an axis, next to the names of rows."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from markupsafe import Markup, escape

from samestep.experiments.page.axes import AxisScale
from samestep.experiments.page.loaded import Entry, Facet, Loaded
from samestep.experiments.page.rendering import attributes, clean, render

Figure = TypeVar("Figure")
_MOST_NUMBERS = 400
"""The most lines of a table below a figure."""
_MEASURED, _PREDICTED = ", measured", ", predicted"
"""The suffixes of two names of numbers that share one column if they are the same in all rows."""


def render_figures(
    loaded: Loaded, name: str, make: Callable[[Facet], Figure | None], content: Mapping[str, object] | None = None
) -> Markup | None:
    """Renders a section with a figure for each facet; None if there is none.

    Args:
        loaded: The contents of the report.
        name: The name of the template, whose variable `figures` has the figures.
        make: Makes a figure; returns None for a facet that has nothing to show.
        content: Further variables of the template.
    """
    figures = [found for facet in loaded.facets() if (found := make(facet)) is not None]
    return render(name, {"figures": figures, **(content or {})}) if figures else None


@dataclasses.dataclass(frozen=True)
class Mark:
    """A mark on an axis or a panel.

    Attributes:
        kind: Its class in the style sheet.
        at: Its position: a CSS property -> percent, or pixels for a margin.
        data: Attributes of the element, such as the number that it shows; those that are None are left out.
        said: The text in it.
        name: The name of its number in a table; by default that of its kind.
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
        """Returns the marks for a page: bars with the same place and number are one element with the classes of all."""
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
        alt: A description, for readers who cannot see it.
        title: The title above it.
        axis: The axis of all lines.
        unit: The unit of the axis.
        lines: The lines, one for each row or for each part of a row.
        counted: The unit of the numbers of the marks, such as "bytes".
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
        counted: As in `Plot`.
    """

    headers: Sequence[str]
    rows: Sequence[tuple[str, Sequence[str]]]
    counted: str = ""

    @property
    def is_long(self) -> bool:
        """Whether it is so long that it would make a page too large."""
        return len(self.rows) > _MOST_NUMBERS


def _numbers(line: Line) -> dict[str, str]:
    values = [
        (" ".join(filter(None, (mark.name or _NAMES.get(mark.kind.split()[0], mark.kind.split()[-1]), ending))), value)
        for mark in line.marks
        for key, ending in (("data-value", ""), ("data-low", "from"), ("data-high", "to"))
        if (value := mark.data.get(key)) is not None
    ]
    return {name: f"{value:,}" if isinstance(value, int) else f"{value:,.6g}" for name, value in values}


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
        start: The value at which it is placed, or begins.
        end: The value at which it ends; None for a mark at one value.
        data: As in `Mark`.
        name: As in `Mark`.
    """
    left = axis.place(start)
    wide = {} if end is None else {"width": round(axis.place(end) - left, 2)}
    return Mark(kind, {"left": left, **wide}, data or {}, name=name)
