"""What a quantity is: something that results say, and how it is written."""

import dataclasses
from collections.abc import Callable

from samestep.common.flags import Scalar
from samestep.common.ledger import Ledger
from samestep.common.runtime.records import RunResult
from samestep.experiments.comparing.speeds import MeasuredRow
from samestep.experiments.printing.text import in_unit, percent_off, size

MOST_MISSED = 0.05
"""By so much of what was measured a prediction may be off before the tables say so."""
MARK = "!"
"""Behind a prediction that is off by more."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Quantity:
    """One thing that results say, and how it is written.

    Attributes:
        name: What tables call it, without its unit; also the name of a missed prediction.
        title: What the page calls it; "" where the page does not show it.
        unit: "bytes", "s", or "" where the name says it.
        meaning: One clause on what it is; "" if the name says it.
        key: Its name for programs, as in `--format csv`.
        tracked_as: Its name in trackers of experiments; "" where they do not get it.
        in_ledger: Its value in a ledger, measured or predicted, None where nobody counted it; None if no ledger has it.
        of_row: Its value for a row, if no ledger has it; None where nobody measured it.
        write: How it is written for people; bytes are written as such.
        is_lower_bound: Whether something was not counted in a run, so that its value is at least what was measured.
        better: Which direction is better: "more", "less", or "" where none is.
        in_terminal: Whether tables in a terminal have a column of it.
        is_often_shared: Whether nearly all rows tend to have it in common, so that the caption says it once.
        is_of_a_step: Whether a run that only compiled a step has none.
        is_always_measured: Whether tables have its column even if no row has a value.
        drop_priority: In a table that is too wide, columns with a high priority are left out first; 0 stays.
    """

    name: str
    title: str = ""
    unit: str = ""
    meaning: str = ""
    key: str
    tracked_as: str = ""
    in_ledger: Callable[[Ledger], float | None] | None = None
    of_row: Callable[[MeasuredRow], Scalar] = lambda row: None
    write: Callable[[MeasuredRow], str] = lambda row: ""
    is_lower_bound: Callable[[RunResult], bool] = lambda result: False
    better: str = ""
    in_terminal: bool = True
    is_often_shared: bool = False
    is_of_a_step: bool = True
    is_always_measured: bool = True
    drop_priority: int = 0

    def measured(self, row: MeasuredRow) -> Scalar:
        """Returns its value for a row; None where nobody measured it."""
        return self.in_ledger(row.result.measured) if self.in_ledger else self.of_row(row)

    def predicted(self, result: RunResult) -> float | None:
        """Returns what arithmetic says of it; None where nothing does."""
        return self.in_ledger and self.in_ledger(result.predicted)

    def value(self, row: MeasuredRow) -> Scalar:
        """Returns its value for a row; None for a run that only compiled a step, if it is of a step."""
        return None if self.is_of_a_step and row.result.compiled else self.measured(row)

    def text(self, row: MeasuredRow, unit: str = "") -> str:
        """Returns its value as people read it.

        Args:
            row: What has it.
            unit: One of `UNITS`, which the header of the column names; bytes are written with their own, unless given.
        """
        if self.is_of_a_step and row.result.compiled:
            return ""
        if self.unit != "bytes":
            return self.write(row)
        found = self.measured(row)
        least = "at least " if self.is_lower_bound(row.result) else ""
        return "" if found is None else least + (in_unit(float(found), unit) if unit else size(float(found)))

    def miss(self, result: RunResult) -> str:
        """Returns how far what was measured is from a prediction that misses; "" if it holds, or if there is none.

        What a process did not count may be what is missing: then only what is too much is a miss.
        """
        if self.in_ledger is None or result.compiled or not result.processes:
            return ""
        measured, predicted = self.in_ledger(result.measured), self.predicted(result)
        if measured is None or predicted is None or abs(measured - predicted) <= MOST_MISSED * measured:
            return ""
        if self.is_lower_bound(result) and measured < predicted:
            return ""
        return percent_off(measured, predicted) if predicted else "(none was predicted)"
