"""The section on the bytes on the wire in a step, compared with the textbooks' lower bound."""

from markupsafe import Markup

from samestep.common.costs.textbook import formulas
from samestep.common.errors import SamestepError, count
from samestep.common.run import parse
from samestep.common.runtime.records import RunResult
from samestep.experiments.comparing.quantities import SENT
from samestep.experiments.page.axes import AxisScale, in_bytes
from samestep.experiments.page.loaded import Entry, Facet, Loaded
from samestep.experiments.page.plots import Line, Mark, Plot, mark, render_figures
from samestep.experiments.printing.column_table import cells
from samestep.experiments.printing.host_table import MEANING, host_columns
from samestep.experiments.printing.text import size

MARKS = (("expected", "predicted"), ("least", "lower bound"))
"""Class of a mark -> its name in the key."""


def write(loaded: Loaded) -> Markup | None:
    """Makes the section about bytes on the wire; None if no run counted them by host."""
    rows = [(entry.name, result.by_host) for facet in loaded.facets() for entry, result in facet.rows if result.by_host]
    hosts = [(name, *cells(host_columns(by_host), by_host)) for name, by_host in rows]
    return render_figures(loaded, "wire", plot, {"hosts": hosts, "of_hosts": MEANING, "marks": [*MARKS]})


def least_bytes(result: RunResult) -> float | None:
    """Returns the textbooks' bytes on the wire in a step; None if they do not have the strategy."""
    try:
        found = formulas(parse(result.config), result.backend)
    except SamestepError:  # a user's model or data that no longer exists here
        return None
    return next((formula.value for formula in found if formula.quantity == "sent"), None)


def plot(facet: Facet) -> Plot | None:
    """Makes the figure of a facet; None if nothing is sent."""
    trained = [
        (entry, result, result.sent_bytes, least_bytes(result)) for entry, result in facet.rows if not result.compiled
    ]
    if not any(sent for _, _, sent, _ in trained):
        return None
    axis, unit = in_bytes(
        [value for _, r, sent, least in trained for value in (sent, SENT.predicted(r) or 0.0, least or 0)]
    )
    drawn = [Line(row[0], _marks(axis, *row), _said(*row)) for row in trained]
    most = max(trained, key=lambda row: row[2])
    rows = count(len(trained), "row")
    alt = f"Bytes sent in a step by {rows}, {facet.title}; {most[0].name} sends the most, {size(most[2])}."
    return Plot(alt, facet.title, axis, f"{unit} sent in a step, by all processes", drawn, "bytes")


def _marks(axis: AxisScale, entry: Entry, result: RunResult, sent: float, least: float | None) -> list[Mark]:
    expected = SENT.predicted(result) or 0.0
    return [
        mark(f"bar measured {entry.framework}", axis, 0, sent, {"data-value": sent}, "sent"),
        mark("expected", axis, expected, data={"data-value": expected}),
        *([] if least is None else [mark("least", axis, least, data={"data-value": least})]),
    ]


def _said(entry: Entry, result: RunResult, sent: float, least: float | None) -> dict[str, object]:
    if not (entry.measured and sent):
        return {"bytes": "nothing", "against": "between processes" if len(result.processes) > 1 else ""}
    against = f"{sent / least:.2f}x the lower bound" if least else "no formula" if least is None else ""
    return {"bytes": SENT.text(entry.measured), "against": against}
