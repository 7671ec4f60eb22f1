"""What the tables of results say of speeds: the median, how far it may be from the next one, the verdict, the percentiles."""

import dataclasses
from collections.abc import Callable, Sequence

from samestep.common.judging.comparison import LEAST_ROUNDS
from samestep.common.runtime.records import RunResult
from samestep.experiments.comparing.speeds import Rounds, Speed, speed_of
from samestep.experiments.printing.text import Column, short


@dataclasses.dataclass(frozen=True)
class Timed:
    """A row that has a result.

    Attributes:
        result: Of its first round.
        speed: Over all its rounds.
    """

    result: RunResult
    speed: Speed


_WIDEST = 100
"""An interval from a number to so many times it says nothing, as two rounds on a busy machine do."""
Row = Timed | tuple[str, str]
"""One with a result; or the cell and the status of one that has none."""


def of_a_step(value: Callable[[Timed], str]) -> Callable[[Row], str]:
    """Nothing for a run that only compiled a step."""
    return lambda row: "" if isinstance(row, tuple) or row.result.compiled else value(row)


def speed_columns(rows: Sequence[Timed], reference: str) -> list[Column[Row]]:
    """Makes the columns of the speed, how it compares with the reference row's, and the times of steps.

    Args:
        rows: The rows that have a result.
        reference: The name of the row that the others are compared with; "" if there is none.
    """
    median = Column("examples/s", of_a_step(_median), "the median of the run's timed windows")
    spread = "[the slowest..the fastest]; another run may lie outside"
    times = [_step_times()] if any(map(_percentiles, rows)) else []
    if not any(map(_interval, rows)):
        return [median, Column("[spread]", of_a_step(_spread), spread, gives_way=4, is_detail=True), *times]
    rounds = dataclasses.replace(median, meaning="the median over the rounds")
    predicted = "[where that of a later comparison of as many rounds lies, in 95 of 100 cases]"
    interval = Column("[95 %]", of_a_step(_interval), predicted, gives_way=1, is_detail=True)
    return [rounds, interval, *([_verdict(rows, reference)] if reference else []), *times]


def _verdict(rows: Sequence[Timed], reference: str) -> Column[Row]:
    meaning = f"examples/s against {reference}'s in the same round; "
    rounds = max(row.speed.prediction.rounds for row in rows if row.speed.is_reference and row.speed.prediction)
    is_judged = rounds >= LEAST_ROUNDS
    meaning += "tested at 5 %, with Holm's correction" if is_judged else f"verdicts take {LEAST_ROUNDS} rounds"
    if any(row.speed.confounds for row in rows):
        meaning += "; in parentheses, why a row is not ranked"
    return Column("verdict" if is_judged else "ratio", of_a_step(lambda row: row.speed.verdict), meaning)


def _step_times() -> Column[Row]:
    meaning = "what 50, 95 and 99 of 100 steps did not exceed; - stands for one that takes more steps"
    return Column("step ms p50 p95 p99", of_a_step(_percentiles), meaning, gives_way=8)


def rate(rounds: Rounds) -> str:
    """Examples per second: the median and its prediction interval; of a single round, the spread of its windows."""
    row = Timed(rounds[0], speed_of(rounds))
    return f"{_median(row)} {spell_range(row)}".strip()


def range_of(row: Timed) -> tuple[float, float] | None:
    """Examples per second between which a row lies: its prediction interval, or the windows of a single round.

    None where neither says anything: one window, or so few rounds that the interval goes from a number to a hundred times it.
    """
    predicted, windows = row.speed.prediction, row.result.examples_per_second
    if predicted is not None and predicted.low is not None and predicted.high is not None:
        return None if predicted.high > _WIDEST * predicted.low else (predicted.low, predicted.high)
    if windows is None or windows.slowest_window is None or windows.fastest_window is None or windows.windows == 1:
        return None
    return windows.slowest_window, windows.fastest_window


def spell_range(row: Timed) -> str:
    """Writes `range_of`, or why there is none; "" where nothing was timed."""
    return _interval(row) or _spread(row)


def _median(row: Timed) -> str:
    return short(row.speed.prediction.median) if row.speed.prediction else ""


def _interval(row: Timed) -> str:
    """The prediction interval, where there are rounds."""
    if row.speed.prediction is None or row.speed.prediction.low is None:
        return ""
    if (ends := range_of(row)) is None:
        return "[too few rounds]"
    low, high = map(short, ends)
    return f"[{low.removesuffix('k') if high.endswith('k') else low}..{high}]"


def _spread(row: Timed) -> str:
    """The slowest and the fastest window, where there is one round."""
    rate = row.result.examples_per_second
    if _interval(row) or rate is None:
        return ""
    if rate.windows == 1:
        return "[1 window]"
    ends = range_of(row)
    return f"[{short(ends[0])}..{short(ends[1])}]" if ends else ""


def _percentiles(row: Timed) -> str:
    """p50, p95 and p99 of the step in milliseconds; "-" stands for one that needs more steps."""
    found = row.speed.step_seconds.values()
    return " ".join("-" if each is None else short(1000 * each) for each in found) if any(found) else ""
