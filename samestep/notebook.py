"""The forms of results in a notebook: a sentence and a table, instead of every number that they hold."""

import html
import itertools
from collections.abc import Callable, Mapping
from typing import NamedTuple

from samestep.common.errors import count
from samestep.common.judging.recorded.verdict import RecordedVerdict
from samestep.common.runtime.records import RunResult
from samestep.experiments.advising.advice import Advice
from samestep.experiments.advising.advice_text import document
from samestep.experiments.advising.forecast import Forecast
from samestep.experiments.advising.prediction import Prediction
from samestep.experiments.comparing.comparison import Comparison
from samestep.experiments.comparing.row import Row, say_status
from samestep.experiments.printing import tables
from samestep.experiments.printing.text import size
from samestep.models import PortResult


class Forms(NamedTuple):
    """How a value is shown.

    Attributes:
        line: Its form in one line, as in a list of values.
        text: Its form if it is shown alone: as the command prints it.
    """

    line: Callable[..., str]
    text: Callable[..., str]


MOST_LINES = 39
"""The most lines of a text that is shown alone."""
_PARAGRAPHS = 3
"""The number of paragraphs of advice: the request, the ranking, and why the first is first."""


def _say_row(row: Row) -> str:
    return say_status([row.cell], row.status, row.attribution).removesuffix(": ")


def _say_prediction(row: Prediction) -> str:
    where = f"{row.cell} on {count(row.num_devices, 'device')}"
    sent = size(row.ledger.sent_bytes_per_step)
    return f"{where}: the fullest needs {size(row.needed_bytes)}, and a step sends {sent} (predicted)"


SHOWN: Mapping[type, Forms] = {
    RunResult: Forms(lambda found: tables.verdict([found]), tables.report),
    Comparison: Forms(lambda found: tables.verdict(found.results), lambda found: found.report("")),
    Row: Forms(_say_row, lambda row: tables.report(row.result) if row.result else _say_row(row)),
    Advice: Forms(
        lambda found: f"{found.first.layout}: {found.first.time.total:.3g} s a step, the fastest layout",
        lambda found: "\n\n".join(document(found).text().split("\n\n")[:_PARAGRAPHS]),
    ),
    PortResult: Forms(
        lambda found: "the same model" if found.is_same else found.verdict.sentence, lambda found: found.report()
    ),
    Forecast: Forms(lambda found: f"predictions of {count(len(found.rows), 'row')}", lambda found: found.report()),
    Prediction: Forms(_say_prediction, lambda row: Forecast((row,), {}).report()),
    RecordedVerdict: Forms(lambda found: found.headline, lambda found: found.headline),
}


def register() -> None:
    """Gives these types the methods that Python's prompt, IPython and other notebooks call."""
    for kind, forms in SHOWN.items():
        methods: Mapping[str, Callable[..., object]] = {
            "__repr__": lambda value, forms=forms: f"<{type(value).__name__}: {forms.line(value)}>",
            "_repr_pretty_": lambda value, printer, cycle, forms=forms: printer.text(shorten(forms.text(value))),
            "_repr_html_": lambda value, forms=forms: as_html(shorten(forms.text(value))) + _figure(value),
        }
        for name, method in methods.items():
            setattr(kind, name, method)


def shorten(text: str) -> str:
    """Returns a command's output in at most `MOST_LINES`; longer output loses legends, then lines before its last paragraph."""
    if len(text.splitlines()) <= MOST_LINES:
        return text
    *parts, last = (part for part in text.split("\n\n") if not part.startswith("* "))
    lines, end = "\n\n".join(parts).splitlines(), ["", last]
    room = MOST_LINES - 1 - len(last.splitlines())
    return "\n".join([*(lines if len(lines) <= room else [*lines[: room - 1], "... report() has the rest"]), *end])


def _figure(value: object) -> str:
    """Returns the figure of a comparison; "" for anything else, and where there is nothing to choose from."""
    if not isinstance(value, Comparison):
        return ""
    from samestep.experiments.page.drawings.svg import file_of  # here, like the next one: most processes draw nothing
    from samestep.experiments.page.drawings.trade import trade

    return "" if (drawn := trade(value)) is None else file_of(drawn)


def as_html(text: str) -> str:
    """Turns what a command prints into HTML: tables into tables, lists into lists, everything else into paragraphs.

    Args:
        text: Paragraphs with an empty line between them; a table has `|` before each line, a list `*` before each item.
    """
    return "\n".join(_paragraph(block.splitlines()) for block in text.split("\n\n") if block.strip())


def _paragraph(lines: list[str]) -> str:
    grouped = [(is_table, list(group)) for is_table, group in itertools.groupby(lines, lambda line: line[:1] == "|")]
    return "\n".join(_table(group) if is_table else _prose(group) for is_table, group in grouped)


def _table(lines: list[str]) -> str:
    header, _, *rows = [[html.escape(cell.strip()) for cell in line.strip("|").split("|")] for line in lines]
    head = "".join(f"<th>{cell}</th>" for cell in header)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _prose(lines: list[str]) -> str:
    if not lines[0].startswith("* "):
        return f"<p>{html.escape(' '.join(line.strip() for line in lines))}</p>"
    items = " ".join(line.strip() if not line.startswith("* ") else f"\0{line[2:]}" for line in lines).split("\0")[1:]
    return "<ul>" + "".join(f"<li>{html.escape(item.strip())}</li>" for item in items) + "</ul>"
