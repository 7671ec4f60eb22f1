"""A quantity of results, and how it is written."""

import dataclasses
from collections.abc import Callable

from samestep.common.flags import Scalar
from samestep.common.ledger import Ledger
from samestep.common.runtime.records import RunResult
from samestep.experiments.comparing.speeds import MeasuredRow
from samestep.experiments.printing.text import in_unit, percent_off, size

MOST_MISSED = 0.05
"""The share of the measurement by which a prediction may be off before tables mark it."""
MARK = "!"
"""The mark after a prediction that is off by more."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Quantity:
    """A quantity of results, and how it is written.

    Attributes:
        name: Its name in tables, without its unit; also the name of a missed prediction.
        title: Its name on the page, if that is another.
        on_page: Whether the page has a column of it.
        unit: "bytes", "s", or "" if the name says it.
        meaning: A clause that explains it; "" if the name does.
        key: Its name for programs, as in `--format csv`.
        tracked_as: Its name in experiment trackers; "" if they do not get it.
        in_ledger: Returns its value in a measured or predicted ledger, None if it was not counted; None if no ledger has it.
        of_row: Returns its value for a row, if no ledger has it; None if it was not measured.
        write: Writes it for people, unless the unit is bytes.
        is_lower_bound: Whether something was not counted in a run, so its value is at least what was measured.
        better: Which direction is better: "more", "less", or "" if neither is.
        in_terminal: Whether tables in a terminal have a column of it.
        is_often_shared: Whether nearly all rows tend to have it in common, so the caption says it once.
        is_of_a_step: Whether it belongs to a step, so a run that only compiled one has no value.
        is_always_measured: Whether tables have its column even if no row has a value.
        drop_priority: In a table that is too wide, columns with a high priority are left out first; 0 is never left out.
    """

    name: str
    title: str = ""
    on_page: bool = True
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
        """Returns its value for a row; None if it was not measured."""
        return self.in_ledger(row.result.measured) if self.in_ledger else self.of_row(row)

    def predicted(self, result: RunResult) -> float | None:
        """Returns its prediction; None if there is none."""
        return self.in_ledger(result.predicted) if self.in_ledger else None

    def value(self, row: MeasuredRow) -> Scalar:
        """Returns its value for a row; None if it belongs to a step and the run only compiled one."""
        return None if self.is_of_a_step and row.result.compiled else self.measured(row)

    def text(self, row: MeasuredRow, unit: str = "") -> str:
        """Returns its value as text.

        Args:
            row: The row.
            unit: One of `UNITS`, which the header of the column names; by default bytes are written with their own unit.
        """
        if self.is_of_a_step and row.result.compiled:
            return ""
        if self.unit != "bytes":
            return self.write(row)
        found = self.measured(row)
        least = "at least " if self.is_lower_bound(row.result) else ""
        return "" if found is None else least + (in_unit(float(found), unit) if unit else size(float(found)))

    def miss(self, result: RunResult) -> str:
        """Returns how far the measurement is from a prediction that misses; "" if the prediction holds, or there is none.

        If a process could not count something, the measurement may be too small, so only one that is too large is a miss.
        """
        if self.in_ledger is None or result.compiled or not result.processes:
            return ""
        measured, predicted = self.in_ledger(result.measured), self.predicted(result)
        if measured is None or predicted is None or abs(measured - predicted) <= MOST_MISSED * measured:
            return ""
        if self.is_lower_bound(result) and measured < predicted:
            return ""
        return percent_off(measured, predicted) if predicted else "(none was predicted)"
