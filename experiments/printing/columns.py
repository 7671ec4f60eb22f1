"""The columns of tables of results, and their values for one run."""

import dataclasses
from collections.abc import Iterable, Sequence

from samestep.common.cell import Cell
from samestep.common.errors import percent
from samestep.common.judging.speed_comparison import LEAST_ROUNDS
from samestep.common.runtime.records import RunResult
from samestep.experiments.comparing.quantities import METRIC, QUANTITIES, SAME_STEP, SPEED, STARTUP, VERDICT
from samestep.experiments.comparing.quantity import MARK, MOST_MISSED, Quantity
from samestep.experiments.comparing.speeds import MeasuredRow
from samestep.experiments.printing.column_table import Column
from samestep.experiments.printing.text import common_unit, explain_emulation, in_unit, marked, short

Line = MeasuredRow | tuple[str, str]
"""A row with a result, or the name and the status of one without."""
_FOR_VERDICT = 2
"""Columns up to this priority are dropped only to make room for the verdict."""

_WIDEST = 100
"""An interval whose ends have a larger ratio is meaningless, as with two rounds on a busy machine."""


def cell(result: RunResult) -> str:
    """Returns the cell, `framework:strategy+option=value`, with a mesh that is not the default, and a mark if it is emulated."""
    return marked(Cell.of(result.config), result.emulation)


def explain_emulations(results: Sequence[RunResult]) -> list[str]:
    """Returns what runs in place of emulated rows: a line for each strategy, or for each cell if only some are emulated.

    Args:
        results: The results of the rows.
    """
    real = {Cell.of(each.config).name for each in results if not each.emulation}
    said: dict[tuple[str, str], None] = {}
    for each in results:
        if each.emulation:
            cell = Cell.of(each.config)
            said[str(cell) if cell.name in real else cell.name, each.emulation] = None
    return [explain_emulation(*each) for each in said]


def misses(result: RunResult) -> dict[str, str]:
    """Returns the quantities whose prediction misses, with the deviation of the measurement, as in "+12 %"."""
    return {quantity.name: far for quantity in QUANTITIES if (far := quantity.miss(result))}


def explain_misses(rows: Iterable[tuple[str, RunResult]]) -> list[str]:
    """Returns a line with the predictions that miss, and by how much; no line if all hold.

    Args:
        rows: The name of each row, and its result.
    """
    told = [
        f"{name} {', '.join(f'{quantity} {error}' for quantity, error in found.items())}"
        for name, result in rows
        if (found := misses(result))
    ]
    if not told:
        return []
    return [
        f"{MARK} the prediction is off by more than {percent(MOST_MISSED)}; the measurement deviates by: {'; '.join(told)}"
    ]


def shared_columns(rows: Sequence[MeasuredRow]) -> list[Column[MeasuredRow]]:
    """Makes the columns of the quantities that the caption says once if nearly all rows have them in common.

    Args:
        rows: The rows that have a result.
    """
    found = [_column(quantity) for quantity in QUANTITIES if quantity.is_often_shared]
    if not rows:
        return found
    result = rows[0].result
    better = f", {result.metric_direction} is better" if result.metric_direction else ""
    metric = f"{result.metric_name.replace('_', ' ')}{better}"
    return [dataclasses.replace(c, meaning=metric) if c.header == METRIC.name else c for c in found]


def columns(
    varying: Sequence[Column[MeasuredRow]], rows: Sequence[MeasuredRow], startup: str, reference: str = ""
) -> list[Column[MeasuredRow]]:
    """Returns the columns of the measurements, with bytes in one unit for all rows.

    Args:
        varying: The columns of `shared_columns` that are not in the caption.
        rows: The rows that have a result.
        startup: What the start-up time includes, in words.
        reference: The name of the row that the others are compared with; "" if there is none.
    """
    shown = list(varying)
    for quantity in QUANTITIES:
        if not quantity.in_terminal or quantity.is_often_shared:
            continue
        if quantity is SPEED:
            shown += speed_column(rows)
        elif quantity is VERDICT:
            shown += verdict_column(rows, reference) if reference else []
        elif quantity.in_ledger is not None:
            shown += _bytes(quantity, rows, bool(reference))
        elif quantity.is_always_measured or any(map(quantity.text, rows)):
            shown.append(_column(quantity, f", {startup}" if quantity is STARTUP else ""))
    return shown


def columns_of_lines(measured: Sequence[Column[MeasuredRow]]) -> list[Column[Line]]:
    """Returns the columns of a table that names its rows and has lines for rows without a result.

    Args:
        measured: The columns of the rows with a result.
    """
    first: Column[Line] = Column("strategy", lambda line: line[0] if isinstance(line, tuple) else line.name)
    return [first, *map(_of_lines, measured)]


def _of_lines(column: Column[MeasuredRow]) -> Column[Line]:
    """Returns the column for lines. A row without a result has its status in the column "same step"."""
    has_status = column.header == SAME_STEP.name

    def write(line: Line) -> str:
        return column.value(line) if isinstance(line, MeasuredRow) else line[1] if has_status else ""

    return Column(column.header, write, column.meaning, column.drop_priority, column.is_detail)


def _column(quantity: Quantity, more: str = "") -> Column[MeasuredRow]:
    header = f"{quantity.name} {quantity.unit}".rstrip()
    return Column(header, quantity.text, quantity.meaning + more, quantity.drop_priority)


def _bytes(quantity: Quantity, rows: Sequence[MeasuredRow], has_verdict: bool) -> list[Column[MeasuredRow]]:
    """Returns a column of measured bytes, and a detail with the predicted bytes, marked where they miss."""
    if not (quantity.is_always_measured or any(map(quantity.text, rows))):
        return []
    ran = [row for row in rows if not row.result.compiled]
    unit = common_unit(
        float(each or 0) for row in ran for each in (quantity.value(row), quantity.predicted(row.result))
    )
    priority = quantity.drop_priority if has_verdict or quantity.drop_priority > _FOR_VERDICT else 0

    def write_predicted(row: MeasuredRow) -> str:
        found = None if row.result.compiled else quantity.predicted(row.result)
        return "" if found is None else f"({in_unit(found, unit)}){quantity.miss(row.result) and MARK}"

    return [
        Column(f"{quantity.name} {unit}", lambda row: quantity.text(row, unit), quantity.meaning, priority),
        Column("(predicted)", write_predicted, drop_priority=max(5, priority), is_detail=True),
    ]


def speed_column(rows: Sequence[MeasuredRow]) -> list[Column[MeasuredRow]]:
    """Makes the column of the speed, with the interval for another run.

    Args:
        rows: The rows that have a result.
    """
    median = Column(SPEED.name, SPEED.text, SPEED.meaning)
    if not any(map(_interval, rows)):
        spread = "[slowest..fastest]; another run may lie outside"
        return [median, Column("[spread]", _spread, spread, drop_priority=4, is_detail=True)]
    rounds = dataclasses.replace(median, meaning="the median over the rounds")
    predicted = "[the range that contains the median of a later comparison in 95 of 100 cases]"
    return [rounds, Column("[95 %]", _interval, predicted, drop_priority=1, is_detail=True)]


def verdict_column(rows: Sequence[MeasuredRow], reference: str) -> list[Column[MeasuredRow]]:
    """Makes the column of speeds relative to the reference row's, if there are rounds.

    Args:
        rows: The rows that have a result.
        reference: The name of the row that the others are compared with.
    """
    if not any(map(_interval, rows)):
        return []
    meaning = f"{SPEED.name} against {reference}'s in the same round; "
    rounds = max(row.speed.prediction.rounds for row in rows if row.speed.is_reference and row.speed.prediction)
    is_judged = rounds >= LEAST_ROUNDS
    meaning += "tested at 5 %, with Holm's correction" if is_judged else f"verdicts take {LEAST_ROUNDS} rounds"
    if any(row.speed.confounds for row in rows):
        meaning += "; in parentheses, why a row is not ranked"
    return [Column(VERDICT.name if is_judged else "ratio", VERDICT.text, meaning)]


def range_of(row: MeasuredRow) -> tuple[float, float] | None:
    """Returns the interval of a row's examples per second: its prediction interval, or the range over windows of one round.

    None if neither is meaningful: with one window, or with so few rounds that one end is over a hundred times the other.
    """
    predicted, windows = row.speed.prediction, row.result.examples_per_second
    if predicted is not None and predicted.low is not None and predicted.high is not None:
        return None if predicted.high > _WIDEST * predicted.low else (predicted.low, predicted.high)
    if windows is None or windows.slowest_window is None or windows.fastest_window is None or windows.windows == 1:
        return None
    return windows.slowest_window, windows.fastest_window


def is_faster(row: MeasuredRow, other: MeasuredRow) -> bool:
    """Returns whether all measurements of one row are faster than all of another one.

    Args:
        row: The row that may be faster.
        other: The row that is compared with it.
    """
    ranges = range_of(row), range_of(other)
    return ranges[0] is not None and ranges[1] is not None and ranges[0][0] > ranges[1][1]


def spell_range(row: MeasuredRow) -> str:
    """Returns `range_of` as text, or why there is none; "" if nothing was timed."""
    return _interval(row) or _spread(row)


def _interval(row: MeasuredRow) -> str:
    """Returns the prediction interval as text; "" without several rounds."""
    if row.speed.prediction is None or row.speed.prediction.low is None:
        return ""
    if (ends := range_of(row)) is None:
        return "[too few rounds]"
    low, high = map(short, ends)
    return f"[{low.removesuffix('k') if high.endswith('k') else low}..{high}]"


def _spread(row: MeasuredRow) -> str:
    """Returns the slowest and the fastest window as text; "" if there are several rounds."""
    rate = row.result.examples_per_second
    if _interval(row) or rate is None:
        return ""
    if rate.windows == 1:
        return "[1 window]"
    ends = range_of(row)
    return f"[{short(ends[0])}..{short(ends[1])}]" if ends else ""
