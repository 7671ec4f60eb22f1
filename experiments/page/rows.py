"""The table of all rows: sorted and filtered in the browser, by the raw number behind each cell."""

import dataclasses
import math
from collections.abc import Callable, Sequence

from markupsafe import Markup

from samestep.common.flags import Scalar
from samestep.experiments.comparing.quantities import METRIC, QUANTITIES, SAME_STEP, SPEED, WORKLOAD
from samestep.experiments.comparing.quantity import MARK, Quantity
from samestep.experiments.page.loaded import Entry, Loaded
from samestep.experiments.page.rendering import breakable, render
from samestep.experiments.page.verdicts import status
from samestep.experiments.printing import tables

Value = Callable[[Entry], Scalar]


@dataclasses.dataclass(frozen=True)
class SortableColumn:
    """A column of the table.

    Attributes:
        title: Its title, with its unit.
        value: The number or text that it is sorted by; None comes last.
        show: How it is written.
        name: The name of its quantity; "" if it does not show one.
        falls: Whether the largest value comes first.
        has_bar: Whether a bar in each cell shows its value, from zero.
    """

    title: str
    value: Value
    show: Callable[[Entry], Markup | str]
    name: str = ""
    falls: bool = False
    has_bar: bool = False


def write(loaded: Loaded) -> Markup:
    """Makes the section."""
    once = _said_once(loaded)
    shown = [
        column
        for column in COLUMNS
        if column.name not in once and any(column.value(entry) is not None for entry in loaded.entries)
    ]
    entries = sorted(loaded.entries, key=_by_speed)
    most = [_most(column, entries) for column in shown]
    lines = [(entry, [_cell(*each, entry) for each in zip(shown, most, strict=True)]) for entry in entries]
    texts = zip(*([text for _, text, _ in cells] for _, cells in lines), strict=True)
    first, *others = (f"{_width(*each)}ch" for each in zip(shown, texts, strict=True))
    widths = f"--first:{first};--columns:{' '.join(others)}"
    numbers = [place for place, each in enumerate(most, 1) if each is not None]
    return render("rows", {"columns": shown, "lines": lines, "widths": widths, "numbers": numbers, "by": SPEED.name})


def _said_once(loaded: Loaded) -> Sequence[str]:
    """Returns the names of quantities without a column, since the verdict of the only comparison states them for all rows."""
    if loaded.groups[1:] or not loaded.results:
        return ()
    measured = loaded.groups[0].comparison.measured
    same = [WORKLOAD.name] if len(set(map(WORKLOAD.measured, measured))) == 1 else []
    return same + tables.said_once(measured)


def _by_speed(entry: Entry) -> float:
    """Returns a sort key: the fastest rows first, rows without a speed last."""
    speed = SPEED.value(row) if (row := entry.measured) else None
    return math.inf if speed is None else -float(speed)


def _most(column: SortableColumn, entries: Sequence[Entry]) -> float | None:
    """Returns the largest number of a column; None if it holds no numbers."""
    values = [value for entry in entries if (value := column.value(entry)) is not None]
    are_numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    return max(map(float, values)) if are_numbers else None


def _cell(column: SortableColumn, most: float | None, entry: Entry) -> tuple[Scalar, Markup | str, str | None]:
    """Returns the value of a cell, its text, and the style of its bar."""
    value = column.value(entry)
    bar = f"--bar:{round(100 * float(value) / most, 2):g}%" if column.has_bar and value and most else None
    return float(f"{value:.8g}") if isinstance(value, float) else value, column.show(entry), bar


def _width(column: SortableColumn, texts: Sequence[Markup | str]) -> int:
    """Returns the width of a column with these cells, in characters.

    With fixed widths, each line is a separate grid, and the browser lays out only the lines that can be seen, so it sorts a
    thousand lines ten times as fast. A grid loses the roles of a table, so the page states them.
    """
    return max(len(column.title) + 3, 2 + max(map(_length, texts)))


def _length(shown: Markup | str) -> int:
    return len(shown.striptags() if isinstance(shown, Markup) else shown)


# --- columns ----------------------------------------------------------------------------------------------------------


def _column(quantity: Quantity) -> SortableColumn:
    """Returns the column of a quantity. A mark shows that its prediction misses, and a line above the table says by how much."""

    def value(entry: Entry) -> Scalar:
        return quantity.value(measured) if (measured := entry.measured) else None

    def show(entry: Entry) -> str:
        if (measured := entry.measured) is None:
            return ""
        return f"{quantity.text(measured)} {quantity.miss(measured.result) and MARK}".rstrip()

    has_bar = quantity.better != "" and (quantity is SPEED or quantity.in_ledger is not None)
    title = quantity.title or quantity.name
    return SortableColumn(title, value, show, quantity.name, quantity.better == "more", has_bar)


def _metric(entry: Entry) -> str:
    """Returns the metric with its name, since other workloads have another one."""
    result = entry.result
    if result is None or result.metric_value is None:
        return ""
    return f"{result.metric_value:.4g} {result.metric_name.replace('_', ' ')}"


_ROW = SortableColumn(
    "row",
    lambda entry: entry.name,
    lambda entry: Markup('<a href="#from-{0.key}" class="{0.framework}">{1}</a>').format(entry, breakable(entry.name)),
)
_ITS_OWN = {
    SAME_STEP.name: SortableColumn(
        SAME_STEP.name, lambda entry: entry.row.status, lambda entry: status(entry.row), SAME_STEP.name
    ),
    METRIC.name: dataclasses.replace(_column(METRIC), show=_metric),
}
"""The quantities that the page writes differently from a terminal."""
COLUMNS = (_ROW, *(_ITS_OWN.get(each.name) or _column(each) for each in QUANTITIES if each.on_page))
"""All columns; the page leaves out those without any value."""
