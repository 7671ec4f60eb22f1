"""The table of all rows: sorted and filtered in the browser, by the raw number behind each cell."""

import dataclasses
from collections.abc import Callable
from xml.etree.ElementTree import Element

from samestep.common.flags import Scalar
from samestep.common.runtime.records import RunResult
from samestep.common.workload.table import title
from samestep.experiments.page.loaded import Entry, Loaded
from samestep.experiments.page.markup import Child, breakable, element, scrolling
from samestep.experiments.page.verdicts import status
from samestep.experiments.printing.columns import devices
from samestep.experiments.printing.misses import BYTES, mark
from samestep.experiments.printing.text import count, short, size

Value = Callable[[Entry], Scalar]


@dataclasses.dataclass(frozen=True)
class Column:
    """A column of the table.

    Attributes:
        title: With its unit.
        value: What it is sorted by, a number or text; None comes last.
        show: How it is written.
    """

    title: str
    value: Value
    show: Callable[[Entry], Child]


def write(loaded: Loaded) -> Element:
    """Makes the section."""
    shown = [column for column in COLUMNS if any(column.value(entry) is not None for entry in loaded.entries)]
    heads = [_head(number, column) for number, column in enumerate(shown)]
    body = [_row(entry, shown) for entry in loaded.entries]
    head = element("thead", element("tr", *heads, role="row"), role="rowgroup")
    first, *others = (f"{width}ch" for width in _widths(loaded, shown))
    widths = f"--first:{first};--columns:{' '.join(others)}"
    table = element("table", head, element("tbody", *body, role="rowgroup"), id="table", role="table", style=widths)
    box = element(
        "input",
        type="search",
        id="filter",
        placeholder="such as: tf: same step",
        autocomplete="off",
        spellcheck="false",
    )
    found = element("output", count(len(body), "row"), id="found", for_="filter")
    tools = element("p", element("label", "Show rows with ", box), found, class_="tools")
    hint = "Click a heading to sort. Rows that the filter leaves out are dimmed in the figures."
    return element(
        "div", tools, scrolling(table, "Table of all rows"), element("p", hint, class_="note", id="table-hint")
    )


def _head(number: int, column: Column) -> Element:
    button = element("button", column.title, type="button", data_column=number)
    return element("th", button, scope="col", role="columnheader", aria_sort="none")


def _row(entry: Entry, shown: list[Column]) -> Element:
    first, *rest = (column.show(entry) for column in shown)
    values = [column.value(entry) for column in shown]
    cells = [element("th", first, scope="row", role="rowheader", data_v=values[0])]
    cells += [element("td", each, role="cell", data_v=value) for each, value in zip(rest, values[1:], strict=True)]
    return element("tr", *cells, role="row", data_row=entry.key)


def _widths(loaded: Loaded, shown: list[Column]) -> list[int]:
    """The widths of the columns, in characters.

    With these, each line is a grid of its own, and the browser lays out only the lines that can be seen: a thousand lines
    are then sorted ten times as fast. A grid loses the roles of a table, so they are given.
    """
    longest = [max(_length(column.show(entry)) for entry in loaded.entries) for column in shown]
    return [max(len(column.title) + 3, length + 2) for column, length in zip(shown, longest, strict=True)]


def _length(shown: Child) -> int:
    return len("".join(shown.itertext()) if isinstance(shown, Element) else shown or "")


# --- columns ----------------------------------------------------------------------------------------------------------


def _of(value: Callable[[RunResult], Scalar]) -> Value:
    """A value of the result; None without one, and for a run that only compiled a step."""
    return lambda entry: value(entry.result) if entry.result and not entry.result.compiled else None


def _text(name: str, value: Callable[[RunResult], str | None]) -> Column:
    return Column(name, _of(value), lambda entry: value(entry.result) if entry.result else None)


def _number(name: str, value: Value, spell: Callable[[float], str]) -> Column:
    def show(entry: Entry) -> str | None:
        found = value(entry)
        return None if found is None else spell(float(found))

    return Column(name, value, show)


def _bytes(title: str, name: str) -> Column:
    """A quantity in bytes, marked where its prediction is off; a line above the table says by how much."""
    measured, _ = BYTES[name]
    column = _number(title, _of(measured), size)

    def show(entry: Entry) -> Child:
        shown = column.show(entry)
        return f"{shown} {mark(entry.result, name)}".rstrip() if shown and entry.result else shown

    return dataclasses.replace(column, show=show)


def _rate(entry: Entry) -> float | None:
    return entry.speed.prediction.median if entry.speed and entry.speed.prediction else None


def _deviation(result: RunResult) -> float | None:
    return None if result.parity.passed is None else result.parity.max_relative_loss


def _metric(result: RunResult) -> str:
    """The metric with its name: rows of other workloads have another one."""
    name = result.metric_name.replace("_", " ")
    return "" if result.metric_value is None else f"{result.metric_value:.4g} {name}"


COLUMNS = (
    Column(
        "row",
        lambda entry: entry.name,
        lambda entry: element("a", *breakable(entry.name), href=f"#from-{entry.key}", class_=entry.framework),
    ),
    Column("same step", lambda entry: entry.row.status, lambda entry: status(entry.row)),
    _number("largest deviation", _of(_deviation), lambda v: f"{v:.1e}"),
    _number("examples/s", _rate, short),
    Column(
        "against reference",
        lambda entry: entry.against.ratio if entry.against else None,
        lambda entry: entry.speed.verdict if entry.speed else None,
    ),
    _bytes("state of a device", "state"),
    _bytes("activations", "activations"),
    _bytes("sent a step", "sent"),
    Column("devices", _of(lambda r: r.config.devices), lambda entry: devices(entry.result) if entry.result else None),
    _text("dtype", lambda r: r.dtype),
    Column("metric", _of(lambda r: r.metric_value), lambda entry: _metric(entry.result) if entry.result else None),
    _number("start-up, s", _of(lambda r: r.startup_seconds), lambda v: f"{v:.2f}"),
    _text("workload", lambda r: title(r.workload, r.config.data)),
)
"""Those that no row has a value for are left out."""
