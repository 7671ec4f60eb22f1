"""How results look in a notebook: a sentence and a table, in the place of every number that they hold."""

import html
import itertools
import sys
from collections.abc import Callable, Mapping

from samestep.common.judging.recorded.verdict import RecordedVerdict
from samestep.common.runtime.records import RunResult
from samestep.experiments.advising.advice import Advice
from samestep.experiments.advising.advice_text import document
from samestep.experiments.advising.forecast import Forecast
from samestep.experiments.comparing.comparison import Comparison
from samestep.experiments.printing import tables
from samestep.models import PortResult

_PARAGRAPHS = 3
"""Of advice: what was asked, the ranking, and why the first is first."""
SHOWN: Mapping[type, Callable[..., str]] = {
    RunResult: tables.report,
    Comparison: lambda found: found.report(""),
    Advice: lambda found: "\n\n".join(document(found).text().split("\n\n")[:_PARAGRAPHS]),
    PortResult: lambda found: found.report(),
    Forecast: lambda found: found.report(),
    RecordedVerdict: lambda found: found.headline,
}
"""What is shown of each type, as the command prints it."""


def register() -> None:
    """Has IPython show these types so, if this process is one; does nothing elsewhere, and imports nothing for it."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if shell is None:
        return
    for kind, write in SHOWN.items():
        formatters = shell.display_formatter.formatters
        formatters["text/html"].for_type(kind, lambda value, write=write: as_html(write(value)) + _figure(value))
        formatters["text/plain"].for_type(kind, lambda value, printer, cycle, write=write: printer.text(write(value)))


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
