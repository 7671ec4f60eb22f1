"""The table of all rows: sorted and filtered in the browser, by the raw number behind each cell."""

import dataclasses
from collections.abc import Callable
from xml.etree.ElementTree import Element

from samestep.common.flags import Scalar
from samestep.common.runtime.records import RunResult
from samestep.common.workload.table import title
from samestep.experiments.columns import devices
from samestep.experiments.page.loaded import Entry, Loaded
from samestep.experiments.page.markup import Child, element
from samestep.experiments.page.verdicts import status
from samestep.experiments.text import count, short, size

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
    table = element("table", element("thead", element("tr", *heads)), element("tbody", *body), id="table")
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
    around = element("div", table, class_="scroll", tabindex="0", role="region", aria_label="Table of all rows")
    return element("div", tools, around, element("p", hint, class_="note"))


def _head(number: int, column: Column) -> Element:
    button = element("button", column.title, type="button", data_column=number)
    return element("th", button, scope="col", aria_sort="none")


def _row(entry: Entry, shown: list[Column]) -> Element:
    first, *rest = (column.show(entry) for column in shown)
    values = [column.value(entry) for column in shown]
    cells = [element("th", first, scope="row", data_v=values[0])]
    cells += [element("td", each, data_v=value) for each, value in zip(rest, values[1:], strict=True)]
    return element("tr", *cells, data_row=entry.key)


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


def _rate(entry: Entry) -> float | None:
    return entry.speed.prediction.median if entry.speed and entry.speed.prediction else None


def _activations(result: RunResult) -> int | None:
    return max((row.activations_bytes for row in result.processes if row.activations_bytes is not None), default=None)


COLUMNS = (
    Column(
        "row",
        lambda entry: entry.name,
        lambda entry: element("a", entry.name, href=f"#from-{entry.key}", class_=entry.framework),
    ),
    Column("same step", lambda entry: entry.row.status, lambda entry: status(entry.row)),
    _number("largest deviation", _of(lambda r: r.parity.max_relative_loss), lambda v: f"{v:.1e}"),
    _text("workload", lambda r: title(r.workload, r.config.data)),
    Column("devices", _of(lambda r: r.config.devices), lambda entry: devices(entry.result) if entry.result else None),
    _text("dtype", lambda r: r.dtype),
    _number("metric", _of(lambda r: r.metric_value), lambda v: f"{v:.4g}"),
    _number("examples/s", _rate, short),
    Column(
        "against the reference",
        lambda entry: entry.against.ratio if entry.against else None,
        lambda entry: entry.speed.verdict if entry.speed else None,
    ),
    _number("state of a device", _of(lambda r: max(row.state_bytes for row in r.processes)), size),
    _number("activations", _of(_activations), size),
    _number("sent a step", _of(lambda r: sum(row.sent_bytes_per_step for row in r.processes)), size),
    _number("start-up, s", _of(lambda r: r.startup_seconds), lambda v: f"{v:.2f}"),
)
"""Those that no row has a value for are left out."""
