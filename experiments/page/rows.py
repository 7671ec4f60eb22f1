"""The table of all rows: sorted and filtered in the browser, by the raw number behind each cell."""

import dataclasses
from collections.abc import Callable

from markupsafe import Markup

from samestep.common.flags import Scalar
from samestep.experiments.comparing.quantities import METRIC, QUANTITIES, SAME_STEP, Quantity
from samestep.experiments.page.loaded import Entry, Loaded
from samestep.experiments.page.rendering import breakable, render
from samestep.experiments.page.verdicts import status
from samestep.experiments.printing.misses import mark

Value = Callable[[Entry], Scalar]


@dataclasses.dataclass(frozen=True)
class SortableColumn:
    """A column of the table.

    Attributes:
        title: With its unit.
        value: What it is sorted by, a number or text; None comes last.
        show: How it is written.
    """

    title: str
    value: Value
    show: Callable[[Entry], Markup | str]


def write(loaded: Loaded) -> Markup:
    """Makes the section."""
    shown = [column for column in COLUMNS if any(column.value(entry) is not None for entry in loaded.entries)]
    lines = [(entry, [(column.value(entry), column.show(entry)) for column in shown]) for entry in loaded.entries]
    first, *others = (f"{width}ch" for width in _widths(loaded, shown))
    widths = f"--first:{first};--columns:{' '.join(others)}"
    return render("rows", {"columns": shown, "lines": lines, "widths": widths})


def _widths(loaded: Loaded, shown: list[SortableColumn]) -> list[int]:
    """Returns the widths of the columns, in characters.

    With these, each line is a grid of its own, and the browser lays out only the lines that can be seen: a thousand lines
    are then sorted ten times as fast. A grid loses the roles of a table, so they are given.
    """
    longest = [max(_length(column.show(entry)) for entry in loaded.entries) for column in shown]
    return [max(len(column.title) + 3, length + 2) for column, length in zip(shown, longest, strict=True)]


def _length(shown: Markup | str) -> int:
    return len(shown.striptags() if isinstance(shown, Markup) else shown)


# --- columns ----------------------------------------------------------------------------------------------------------


def _column(quantity: Quantity) -> SortableColumn:
    """Returns the column of a quantity; a mark says that its prediction is off, and a line above the table says by how much."""

    def value(entry: Entry) -> Scalar:
        return quantity.value(measured) if (measured := entry.measured) else None

    def show(entry: Entry) -> str:
        if (measured := entry.measured) is None:
            return ""
        return f"{quantity.text(measured)} {mark(measured.result, quantity)}".rstrip()

    return SortableColumn(quantity.title, value, show)


def _metric(entry: Entry) -> str:
    """Returns the metric with its name: rows of other workloads have another one."""
    name = entry.result.metric_name.replace("_", " ") if entry.result else ""
    return (
        "" if entry.result is None or entry.result.metric_value is None else f"{entry.result.metric_value:.4g} {name}"
    )


_ROW = SortableColumn(
    "row",
    lambda entry: entry.name,
    lambda entry: Markup('<a href="#from-{0.key}" class="{0.framework}">{1}</a>').format(entry, breakable(entry.name)),
)
_ITS_OWN = {
    SAME_STEP.name: SortableColumn(SAME_STEP.title, lambda entry: entry.row.status, lambda entry: status(entry.row)),
    METRIC.name: dataclasses.replace(_column(METRIC), show=_metric),
}
"""Quantities that the page writes in another way than a terminal."""
COLUMNS = (_ROW, *(_ITS_OWN.get(each.name) or _column(each) for each in QUANTITIES if each.title))
"""Those that no row has a value for are left out."""
