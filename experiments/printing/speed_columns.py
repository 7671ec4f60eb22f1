"""What the tables of results say of speeds: the median, how far it may be from the next one, and the verdict."""

import dataclasses
from collections.abc import Callable, Sequence

from samestep.common.judging.speed_comparison import LEAST_ROUNDS
from samestep.experiments.comparing.quantities import SPEED, VERDICT
from samestep.experiments.comparing.speeds import MeasuredRow
from samestep.experiments.printing.text import Column, short

_WIDEST = 100
"""An interval from a number to so many times it says nothing, as two rounds on a busy machine do."""


def speed_column(rows: Sequence[MeasuredRow]) -> list[Column[MeasuredRow]]:
    """Makes the column of the speed, with how far another one may be from it.

    Args:
        rows: The rows that have a result.
    """
    median = Column(SPEED.name, SPEED.text, SPEED.meaning)
    if not any(map(_interval, rows)):
        spread = "[the slowest..the fastest]; another run may lie outside"
        return [median, Column("[spread]", of_a_step(_spread), spread, gives_way=4, is_detail=True)]
    rounds = dataclasses.replace(median, meaning="the median over the rounds")
    predicted = "[where that of a later comparison of as many rounds lies, in 95 of 100 cases]"
    return [rounds, Column("[95 %]", of_a_step(_interval), predicted, gives_way=1, is_detail=True)]


def verdict_column(rows: Sequence[MeasuredRow], reference: str) -> list[Column[MeasuredRow]]:
    """Makes the column of how speeds compare with the reference row's, where there are rounds and such a row.

    Args:
        rows: The rows that have a result.
        reference: The name of the row that the others are compared with; "" if there is none.
    """
    if not (reference and any(map(_interval, rows))):
        return []
    meaning = f"{SPEED.name} against {reference}'s in the same round; "
    rounds = max(row.speed.prediction.rounds for row in rows if row.speed.is_reference and row.speed.prediction)
    is_judged = rounds >= LEAST_ROUNDS
    meaning += "tested at 5 %, with Holm's correction" if is_judged else f"verdicts take {LEAST_ROUNDS} rounds"
    if any(row.speed.confounds for row in rows):
        meaning += "; in parentheses, why a row is not ranked"
    return [Column(VERDICT.name if is_judged else "ratio", VERDICT.text, meaning)]


def of_a_step(write: Callable[[MeasuredRow], str]) -> Callable[[MeasuredRow], str]:
    """Writes nothing for a run that only compiled a step."""
    return lambda row: "" if row.result.compiled else write(row)


def range_of(row: MeasuredRow) -> tuple[float, float] | None:
    """Examples per second between which a row lies: its prediction interval, or the windows of a single round.

    None where neither says anything: one window, or so few rounds that the interval goes from a number to a hundred times it.
    """
    predicted, windows = row.speed.prediction, row.result.examples_per_second
    if predicted is not None and predicted.low is not None and predicted.high is not None:
        return None if predicted.high > _WIDEST * predicted.low else (predicted.low, predicted.high)
    if windows is None or windows.slowest_window is None or windows.fastest_window is None or windows.windows == 1:
        return None
    return windows.slowest_window, windows.fastest_window


def spell_range(row: MeasuredRow) -> str:
    """Writes `range_of`, or why there is none; "" where nothing was timed."""
    return _interval(row) or _spread(row)


def _interval(row: MeasuredRow) -> str:
    """Returns the prediction interval, where there are rounds."""
    if row.speed.prediction is None or row.speed.prediction.low is None:
        return ""
    if (ends := range_of(row)) is None:
        return "[too few rounds]"
    low, high = map(short, ends)
    return f"[{low.removesuffix('k') if high.endswith('k') else low}..{high}]"


def _spread(row: MeasuredRow) -> str:
    """Returns the slowest and the fastest window, where there is one round."""
    rate = row.result.examples_per_second
    if _interval(row) or rate is None:
        return ""
    if rate.windows == 1:
        return "[1 window]"
    ends = range_of(row)
    return f"[{short(ends[0])}..{short(ends[1])}]" if ends else ""
