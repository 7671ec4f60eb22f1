"""What a comparison answers in three lines: which row is fastest, which holds least, which sends least, and how sure that is."""

import dataclasses

from samestep.common.errors import name_some
from samestep.experiments.comparing.comparison import Comparison
from samestep.experiments.comparing.quantities import SENT, STATE
from samestep.experiments.comparing.quantity import Quantity
from samestep.experiments.comparing.speeds import MeasuredRow, share_cores
from samestep.experiments.printing.columns import is_faster
from samestep.experiments.printing.text import short

_NAMED = 3
"""The most equal rows that are named; the rest is counted."""


@dataclasses.dataclass(frozen=True)
class Superlative:
    """A row that is ahead of the others in one quantity.

    Attributes:
        question: The quantity, in a word or two.
        answer: The row or the rows, and the value.
        certainty: How sure that is.
    """

    question: str
    answer: str
    certainty: str


def answers(found: Comparison) -> list[Superlative]:
    """Answers what a reader asks first; empty if there is nothing to choose from.

    Args:
        found: The comparison. The oracle and rows that took another step are left out.
    """
    rows = {name: row for name, row in measured_rows(found).items() if row.result.parity.passed is not False}
    if len(rows) < 2:
        return []
    given = (_fastest(rows), _least("holds least", STATE, rows), _least("sends least", SENT, _exchanging(rows)))
    return [answer for answer in given if answer]


def measured_rows(found: Comparison) -> dict[str, MeasuredRow]:
    """Returns the rows that trained, by name, without the oracle, which is not a strategy."""
    return {row.cell: row for row in found.measured if row.result.is_trained}


def _exchanging(rows: dict[str, MeasuredRow]) -> dict[str, MeasuredRow]:
    """Returns the rows of several processes: devices of one exchange in its memory, which is not a wire."""
    return {name: row for name, row in rows.items() if len({each.role for each in row.result.processes}) > 1}


def _fastest(rows: dict[str, MeasuredRow]) -> Superlative | None:
    # An emulation's speed says nothing of the row.
    real = {name: row for name, row in rows.items() if not row.result.emulation}
    timed = {name: row.speed.prediction.median for name, row in real.items() if row.speed.prediction}
    if len(timed) < 2:
        return None
    best, second, *_ = sorted(timed, key=lambda name: -timed[name])
    return Superlative("fastest", f"{best}, {short(timed[best])} examples/s", _certainty(best, second, rows))


def _certainty(best: str, second: str, rows: dict[str, MeasuredRow]) -> str:
    """Says how sure it is that a row is faster than the next one."""
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
