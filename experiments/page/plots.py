"""What figures are made of: their title and meaning, and lines of marks beside a name."""

import dataclasses
from collections.abc import Callable, Sequence
from xml.etree.ElementTree import Element

from samestep.experiments.page.axes import Axis
from samestep.experiments.page.loaded import Entry, Facet, Loaded
from samestep.experiments.page.markup import Child, element


def for_facets(loaded: Loaded, make: Callable[[Facet], Element | None], *above: Child) -> Element | None:
    """A figure for each facet; None if there is none.

    Args:
        loaded: What the report is about.
        make: Makes a figure; None of a facet that has nothing to show.
        *above: What all of them mean.
    """
    figures = [found for facet in loaded.facets() if (found := make(facet)) is not None]
    return element("div", *above, *figures) if figures else None


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
            **axis.described("x"),
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
