"""A row of a comparison: a cell with its status and results."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence

from samestep.common.cell import Cell
from samestep.common.judging.parity import Attribution
from samestep.common.runtime.records import RunResult
from samestep.experiments.printing.formats import Case, Outcome
from samestep.experiments.printing.text import sharing

SAME, MISSED, NOT_JUDGED, REFERENCE, COMPILED = "same step", "not the same step", "not judged", "reference", "compiled"
"""The statuses of rows that have a result."""
UNAVAILABLE, IMPOSSIBLE, FAILED, NOT_RUN = "unavailable", "not possible", "failed", "not run"
"""The statuses of rows that have none."""


@dataclasses.dataclass(frozen=True)
class Row:
    """One cell of a comparison, with its status and results.

    Attributes:
        configuration: The cell that was run.
        status: "same step", "not the same step", "not judged", "reference" (the oracle's own row) or "compiled"; without
            a result "unavailable", "not possible", "failed" or "not run".
        reason: Why it has no result, was not judged, is not the same step, or is the same step although its curve is off; ""
            otherwise.
        results: The results of its runs, one for each round, in order; none unless all of them trained. The oracle
            runs once, and a row that missed parity runs no further round.
        seconds: The seconds that its runs took, including judging them.
        number: The number of the row among those of one configuration, where runs without a result have their own rows.
    """

    configuration: Cell
    status: str
    reason: str = ""
    results: tuple[RunResult, ...] = ()
    seconds: float = 0.0
    number: int = 1

    @property
    def cell(self) -> str:
        """The name of the row: its cell, as in `torch:ddp+clip_norm=1`."""
        return str(self.configuration) + (f" #{self.number}" if self.number > 1 else "")

    @functools.cached_property
    def result(self) -> RunResult | None:
        """The first result, or the one that missed parity; None if the row has none."""
        missed = (result for result in self.results if result.parity.passed is False)
        return next(missed, self.results[0] if self.results else None)

    @classmethod
    def of(cls, cell: Cell, *results: RunResult, seconds: float = 0.0) -> "Row":
        """Makes the row of runs that have results.

        Args:
            cell: The cell that was run.
            *results: Its results, one for each round.
            seconds: How long they took together.
        """
        result = cls(cell, "", results=results).result
        assert result is not None
        return cls(cell, status_of(result), result.parity.reason, results, seconds)

    def case(self) -> Case:
        """Returns the row as a test case: missed parity is a failure, a failed run an error, an unjudged one skipped."""
        outcomes: Mapping[str, Outcome] = {SAME: "passed", MISSED: "failure", FAILED: "error"}
        outcome = outcomes.get(self.status, "skipped")
        said = (
            say_status([self.cell], MISSED, self.attribution)
            if self.status == MISSED
            else f"{self.status}: {self.reason}"
        )
        return Case(self.cell, outcome, "" if outcome == "passed" else said, self.seconds)

    @property
    def attribution(self) -> Attribution:
        """The reason, and what in the user's model is blamed for missed parity."""
        return Attribution(self.reason, self.result.parity.blame if self.status == MISSED and self.result else "")

    @property
    def is_judged(self) -> bool:
        """Whether it was compared with the oracle, with any outcome."""
        return self.status in (SAME, MISSED)


def status_of(result: RunResult) -> str:
    """Returns the status of a row with this result: how it was judged, or why it was not."""
    if result.parity.passed is not None:
        return SAME if result.parity.passed else MISSED
    return REFERENCE if Cell.of(result.config).is_oracle else COMPILED if result.compiled else NOT_JUDGED


def explain_rows(rows: Sequence[Row]) -> list[str]:
    """Explains why rows have no result, were not judged or missed parity, with one text for all rows that share a reason."""
    explained = (row for row in rows if row.reason and row.status not in (REFERENCE, COMPILED))
    found = sharing(((row.status, row.attribution), row.cell) for row in explained)
    return [say_status(cells, status, cause) for (status, cause), cells in found.items()]


def say_status(cells: Sequence[str], status: str, cause: Attribution) -> str:
    """Returns the status of some rows, and why they have it.

    Args:
        cells: The cells of the rows.
        status: The status of all of them.
        cause: The common cause.
    """
    if status == MISSED:
        from samestep.common.judging.conclusion import (
            explain_missed,  # here: the tables of a run that passed do not need it
        )

        return explain_missed(cells, cause)
    was = "were" if len(cells) > 1 else "was"
    verbs = {FAILED: "failed", SAME: "took the same step", REFERENCE: "cannot be judged"}
    verb = verbs.get(status, f"{was} {status}")
    return f"{', '.join(cells)} {verb}: {cause.reason}"
