"""What goes over the wire in a step, against the least that the textbooks say it takes."""

from xml.etree.ElementTree import Element

from samestep.common.costs.textbook import formulas
from samestep.common.errors import SamestepError
from samestep.common.run import parse
from samestep.common.runtime.records import RunResult
from samestep.experiments.page.axes import Axis, in_bytes
from samestep.experiments.page.loaded import Entry, Facet, Loaded
from samestep.experiments.page.markup import Child, element
from samestep.experiments.page.plots import Line, figure, for_facets, key, lines, mark, meaning
from samestep.experiments.printing.text import size

_MEANING = (
    "Bytes of all processes, counted by the kernel. The lower bound is the textbooks' formula for the strategy, without padding, "
    "buckets and framing; not every strategy has one. Devices of one process exchange in memory and send nothing."
)

_KEY = (
    ("torch", "PyTorch, measured"),
    ("tf", "TensorFlow, measured"),
    ("expected", "predicted"),
    ("least", "lower bound"),
)


def write(loaded: Loaded) -> Element | None:
    """Makes the section."""
    return for_facets(loaded, _figure, meaning(_MEANING), key(*_KEY))


def least_bytes(result: RunResult) -> float | None:
    """The textbooks' bytes on the wire of a step; None if they have none of the row."""
    try:
        found = formulas(parse(result.config), result.backend)
    except SamestepError:  # a user's model or data that is not here any more
        return None
    return next((formula.value for formula in found if formula.quantity == "sent"), None)


def _figure(facet: Facet) -> Element | None:
    trained = [
        (entry, result, _sent(result), least_bytes(result)) for entry, result in facet.rows if not result.compiled
    ]
    if not any(sent for _, _, sent, _ in trained):
        return None
    axis, unit = in_bytes(
        [value for _, r, sent, least in trained for value in (sent, r.predicted.sent_bytes_per_step, least or 0)]
    )
    drawn = [Line(row[0], _marks(axis, *row), _said(*row[1:])) for row in trained]
    most = max(trained, key=lambda row: row[2])
    alt = f"Bytes sent in a step by {len(trained)} rows, {facet.title}; {most[0].name} sends most: {size(most[2])}."
    return figure(alt, facet.title, lines(axis, f"{unit} sent in a step, by all processes", drawn), class_="wire")


def _sent(result: RunResult) -> float:
    return sum(row.sent_bytes_per_step for row in result.processes)


def _marks(axis: Axis, entry: Entry, result: RunResult, sent: float, least: float | None) -> list[Element]:
    expected = result.predicted.sent_bytes_per_step
    return [
        mark(f"bar measured {entry.framework}", axis, 0, sent, data_value=sent),
        mark("expected", axis, expected, data_value=expected),
        *([] if least is None else [mark("least", axis, least, data_value=least)]),
    ]


def _said(result: RunResult, sent: float, least: float | None) -> list[Child]:
    at_least = "at least " if result.uncounted else ""
    if not sent:
        return [element("b", "nothing"), element("small", f" over {result.backend}")]
    against = f" {sent / least:.2f}x the lower bound" if least else " no formula" if least is None else ""
    return [element("b", at_least + size(sent)), element("small", against)]
