"""The section on the verdicts, in plain words, which a reader sees first; and the answers of a comparison, in three lines."""

import dataclasses
import re
from collections import Counter

from markupsafe import Markup

from samestep.common.errors import count, name_some
from samestep.common.judging.speed_comparison import LEAST_ROUNDS
from samestep.experiments.comparing.comparison import Comparison
from samestep.experiments.comparing.confound_report import explain_confounds
from samestep.experiments.comparing.gate import headline
from samestep.experiments.comparing.quantities import SENT, STATE
from samestep.experiments.comparing.quantity import Quantity
from samestep.experiments.comparing.row import FAILED, MISSED, NOT_JUDGED, REFERENCE, SAME, Row, explain_rows
from samestep.experiments.comparing.speeds import MeasuredRow, share_cores, unseparated
from samestep.experiments.page.drawings.trade import trade
from samestep.experiments.page.loaded import Group, Loaded
from samestep.experiments.page.rendering import render, svg
from samestep.experiments.printing import tables
from samestep.experiments.printing.against_report import write_report
from samestep.experiments.printing.aot_report import compiled
from samestep.experiments.printing.columns import explain_emulations, explain_misses, is_faster
from samestep.experiments.printing.text import short

SYMBOLS = {SAME: "✓", MISSED: "✗", FAILED: "✗", NOT_JUDGED: "–"}
"""The symbol of a status, so colour is never its only sign."""
_NAMED = 3
"""The most equal rows that are named; the others are only counted."""
_SHOWN = 3
"""The most comparisons that a headline names."""
_FIGURE = 500
"""The width of the first figure in pixels: a phone shows all of it at two thirds of its size, and a wide screen enlarges it."""


def write(loaded: Loaded) -> Markup:
    """Makes the section."""
    tally = Counter(entry.row.status for entry in loaded.entries)
    examples = {entry.row.status: entry.row for entry in loaded.entries}
    content = {
        "headline": (said := _headline(loaded)),
        "is_alone": not loaded.groups[1:],
        "says_code": "exit code" in said,
        "tally": [(number, status(examples[name])) for name, number in tally.items()],
        "problems": loaded.problems,
        "unread": count(len(loaded.problems), "directory"),
        "kept_apart": loaded.kept_apart,
        "verdicts": list(map(_verdict, loaded.groups)),
    }
    return render("verdict", content)


def status(row: Row) -> Markup:
    """Returns the status of a row, as a symbol and words."""
    kind = {SAME: "good", MISSED: "bad", FAILED: "bad"}.get(row.status, "plain")
    return Markup('<span class="status {}">{} {}</span>').format(kind, SYMBOLS.get(row.status, "·"), row.status)


def _headline(loaded: Loaded) -> str:
    """Returns the main sentence: what is not green, or how far all judged rows are from the reference."""
    titled = [(f"{group.title}: " if loaded.groups[1:] else "", headline(group.comparison)) for group in loaded.groups]
    found = [f"{title}{said}" for title, said in titled if said]
    more = f" {len(found) - _SHOWN} more did not pass." if found[_SHOWN:] else ""
    unread = f" {count(len(loaded.problems), 'directory')} could not be read." if loaded.problems else ""
    if found:
        return " ".join(found[:_SHOWN]) + more + unread
    rows = [entry.row for entry in loaded.entries if entry.row.status != REFERENCE]
    judged = [row for row in rows if row.is_judged]
    if not judged:
        return f"No row was judged, so nothing is known about their steps.{unread}"
    if len(judged) < len(rows):
        are, which = ("were", "all of them") if judged[1:] else ("was", "that one")
        which = f"{len(judged)} of {len(rows)} rows {are} judged, and {which}"
    else:
        which = "Every row" if judged[1:] else judged[0].cell
    return f"{which} took the same step as {'their' if 'all' in which else 'its'} reference.{unread}"


def _verdict(group: Group) -> dict[str, object]:
    """Returns the verdict of a comparison, with its notes and details."""
    found, results = group.comparison, group.comparison.results

    details = {
        "How many rounds would separate rows": unseparated(found.speeds, found.reference),
        "Which rows are not ranked by speed, and why": explain_confounds(found.rounds, found.reference, found.allowed),
    }
    return {
        "group": group,
        "explained": explain_rows(found.rows),
        "caption": " ".join(tables.caption(found.measured).split()),
        "verdict": tables.verdict(results) if results else "",
        "notes": [*explain_emulations(results), *explain_misses((row.cell, row.result) for row in found.measured)],
        "answers": answers(found),
        "figure": None if (drawn := trade(found, _FIGURE)) is None else svg(drawn),
        "speeds": _speeds(found),
        "details": {title: lines for title, text in details.items() if (lines := _lines(text))},
        "against": write_report(found.against) if found.against else "",
        "compiled": compiled(results),
    }


def _speeds(found: Comparison) -> str:
    """Returns how many rows were separated from the reference row, in a sentence."""
    if not found.results or max(map(len, found.rounds.values())) == 1:
        return "Each row was measured once, so no speed is ranked." if found.results else ""
    verdicts = Counter(
        "not ranked" if speed.confounds or not speed.against else speed.against.verdict or "not judged"
        for speed in found.speeds.values()
        if speed.confounds or speed.against
    )
    if not verdicts:
        return ""
    told = ", ".join(f"{number} {verdict}" for verdict, number in verdicts.most_common())
    why = f"; a verdict takes {LEAST_ROUNDS} rounds" if "not judged" in verdicts else ""
    return f"Speed against {found.reference}: {told}{why}."


def _lines(text: str) -> list[str]:
    """Returns the lines of a command's output, joining those that were wrapped."""
    return [line for line in re.sub(r"\n  (?=\S)", " ", text).splitlines() if line]


@dataclasses.dataclass(frozen=True)
class Superlative:
    """A row that is ahead of the others in one quantity.

    Attributes:
        question: The quantity, in a word or two.
        answer: The row or the rows, and the value.
        certainty: How certain the answer is.
    """

    question: str
    answer: str
    certainty: str


def answers(found: Comparison) -> list[Superlative]:
    """Returns answers to a reader's first questions; empty if there is nothing to choose from.

    Args:
        found: The comparison. The oracle and rows that took another step are left out.
    """
    rows = {row.cell: row for row in found.trained if row.result.parity.passed is not False}
    if len(rows) < 2:
        return []
    given = (_fastest(rows), _least("holds least", STATE, rows), _least("sends least", SENT, _exchanging(rows)))
    return [answer for answer in given if answer]


def _exchanging(rows: dict[str, MeasuredRow]) -> dict[str, MeasuredRow]:
    """Returns the rows with several processes; devices of a single process exchange in memory, without a wire."""
    return {name: row for name, row in rows.items() if len({each.role for each in row.result.processes}) > 1}


def _fastest(rows: dict[str, MeasuredRow]) -> Superlative | None:
    # The speed of an emulation says nothing about the strategy.
    real = {name: row for name, row in rows.items() if not row.result.emulation}
    timed = {name: row.speed.prediction.median for name, row in real.items() if row.speed.prediction}
    if len(timed) < 2:
        return None
    best, second, *_ = sorted(timed, key=lambda name: -timed[name])
    return Superlative("fastest", f"{best}, {short(timed[best])} examples/s", _certainty(best, second, rows))


def _certainty(best: str, second: str, rows: dict[str, MeasuredRow]) -> str:
    """Returns how certain it is that a row is faster than the next one."""
    if share_cores(rows[best].result) or share_cores(rows[second].result):
        return "devices share cores here, so this says little about a machine with a core for each device"
    predicted = rows[best].speed.prediction
    if predicted is None or predicted.rounds == 1:
        return f"measured once, so not ranked above {second}; --repeats 5 ranks them"
    if is_faster(rows[best], rows[second]):
        return f"its interval lies above that of the next, {second}"
    return f"not separated from {second}"


def _least(question: str, quantity: Quantity, rows: dict[str, MeasuredRow]) -> Superlative | None:
    values = {name: float(value) for name, row in rows.items() if (value := quantity.measured(row)) is not None}
    if len(values) < 2:
        return None
    least = min(values.values())
    names = [name for name, value in values.items() if value == least]
    is_exact = all(_is_as_predicted(quantity, rows[name]) for name in names)
    certainty = "as predicted" if is_exact else "not as predicted (see the table)"
    return Superlative(
        question, f"{name_some(names, _NAMED)}, {quantity.text(rows[names[0]])}", f"measured, {certainty}"
    )


def _is_as_predicted(quantity: Quantity, row: MeasuredRow) -> bool:
    predicted, measured = quantity.predicted(row.result), quantity.measured(row)
    return predicted is not None and measured is not None and abs(float(measured) - predicted) <= 0.01 * predicted
