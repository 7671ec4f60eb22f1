"""What a comparison found: a row for each cell, what it prints, and how it ends."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

from samestep.common.errors import (
    ConfigError,
    ParityFailed,
    SamestepError,
    Unavailable,
    WorkerFailed,
    signal_exit_code,
)
from samestep.common.runtime.records import RunResult
from samestep.experiments import tables
from samestep.experiments.compiled import compiled
from samestep.experiments.figures import figures
from samestep.experiments.formats import Case, Document, Outcome, write
from samestep.experiments.ranking import ranking

SAME, MISSED, NOT_JUDGED, REFERENCE, COMPILED = "same step", "not the same step", "not judged", "reference", "compiled"
"""The statuses of rows that have a result."""
UNAVAILABLE, IMPOSSIBLE, FAILED, NOT_RUN = "unavailable", "not possible", "failed", "not run"
"""The statuses of rows that have none."""


@dataclasses.dataclass(frozen=True)
class Row:
    """One cell of a comparison and what became of it.

    Attributes:
        cell: As in `torch:ddp+clip_norm=1`.
        status: "same step", "not the same step", "not judged", "reference" (the oracle's own row) or "compiled"; without
            a result "unavailable", "not possible", "failed" or "not run".
        reason: Why it has no result, was not judged, or is not the same step; "" otherwise.
        results: What its runs left, one a round, in the order of the rounds; none unless all of them trained. The oracle
            runs once, and a row that missed parity runs no further round.
        seconds: What its runs took, their judgement included.
    """

    cell: str
    status: str
    reason: str = ""
    results: tuple[RunResult, ...] = ()
    seconds: float = 0.0

    @property
    def result(self) -> RunResult | None:
        """The first result, or the one that missed parity; None if the row has none."""
        missed = (result for result in self.results if result.parity.passed is False)
        return next(missed, self.results[0] if self.results else None)

    @classmethod
    def of(cls, cell: str, *results: RunResult, seconds: float = 0.0) -> "Row":
        """Makes the row of runs that have results.

        Args:
            cell: What was run.
            *results: What it left, one a round.
            seconds: What they took together.
        """
        result = cls(cell, "", results=results).result
        assert result is not None
        passed = result.parity.passed
        unjudged = REFERENCE if result.framework == "numpy" else COMPILED if result.compiled else NOT_JUDGED
        return cls(cell, {True: SAME, False: MISSED, None: unjudged}[passed], result.parity.reason, results, seconds)

    def case(self) -> Case:
        """The row as a test case: missed parity fails it, a run that failed is an error, what was not judged is skipped."""
        outcomes: Mapping[str, Outcome] = {SAME: "passed", MISSED: "failure", FAILED: "error"}
        outcome = outcomes.get(self.status, "skipped")
        return Case(self.cell, outcome, "" if outcome == "passed" else f"{self.status}: {self.reason}", self.seconds)

    @property
    def is_judged(self) -> bool:
        """Whether it was held against the oracle, with whatever outcome."""
        return self.status in (SAME, MISSED)


@dataclasses.dataclass(frozen=True)
class Comparison:
    """The rows of a comparison, in the order of its cells, and what was asked of them.

    Attributes:
        rows: One for each cell, the oracle's first.
        named: The cells that must be available, since the user named them.
        required: The cells that must be judged.
        parity: Whether parity was asked for, so that something must be judged.
        interrupt: What ended it before its last row: Ctrl-C, or another signal, which it names.
        repeats: The rounds that were asked for.
        reference: The row that the others are compared with; None if no row can be it.
        directory: Where its runs are.
    """

    rows: tuple[Row, ...]
    named: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    parity: bool = False
    interrupt: KeyboardInterrupt | None = None
    repeats: int = 1
    reference: str | None = None
    directory: Path | None = None

    @property
    def results(self) -> list[RunResult]:
        """The results of the rows that have one."""
        return [row.result for row in self.rows if row.result is not None]

    @property
    def failure(self) -> SamestepError | None:
        """The error that the comparison ends with: missed parity, then failed rows, then what was not there or not judged."""
        if missed := [row.cell for row in self.rows if row.status == MISSED]:
            return ParityFailed(f"{', '.join(missed)} did not take the same step.")
        if failed := [row.cell for row in self.rows if row.status == FAILED]:
            return WorkerFailed(f"{', '.join(failed)} failed.")
        if lacking := [self._lack(row) for row in self.rows if self._lack(row)]:
            return Unavailable("; ".join(lacking))
        if self.parity and not any(row.is_judged for row in self.rows):
            return Unavailable("parity was asked for, but no row was judged.")
        return None

    def _lack(self, row: Row) -> str:
        """What a row that the user named or required lacks; "" if nothing."""
        if row.cell in self.required and not row.is_judged:
            return _sentence([f"{row.cell}, which must be judged,"], row.status, row.reason)
        if row.cell in self.named and row.status == UNAVAILABLE:
            return _sentence([row.cell], row.status, row.reason)
        return ""

    @property
    def exit_code(self) -> int:
        """130 if Ctrl-C ended it; else 4, 1 or 3, as `failure` has it; else 0."""
        if self.interrupt:
            return signal_exit_code(self.interrupt)
        return self.failure.exit_code if self.failure else 0

    @property
    def exit_reason(self) -> str:
        """Why the exit code is not 0; "" if it is."""
        return "interrupted before its last row" if self.interrupt else str(self.failure or "")

    def require(self, *cells: str) -> None:
        """Makes the comparison a gate.

        Args:
            *cells: Rows that must have been judged, beside those that were required when it was started.

        Raises:
            ConfigError: The comparison has no such row.
            ParityFailed: A row did not take the same step.
            WorkerFailed: A row failed.
            Unavailable: A row that was named is unavailable, a required one was not judged, or none was.
        """
        known = [row.cell for row in self.rows]
        for cell in cells:
            if cell not in known:
                raise ConfigError(f"the comparison has no row '{cell}'; it has {', '.join(known)}.")
        if failure := dataclasses.replace(self, required=(*self.required, *cells)).failure:
            raise failure

    def table(self, wide: bool = False) -> str:
        """The table: one line a row, those without a result last.

        Args:
            wide: Whether it shows every column, however wide the screen is.
        """
        failures = [(row.cell, row.status) for row in self.rows if row.result is None]
        return tables.comparison(self.results, failures, wide=wide)

    def to_json(self) -> str:
        """The comparison as `samestep compare --format json` prints it: every row with its whole result."""
        return write(self.document(""), "json")

    def document(self, command: str, wide: bool = False) -> Document:
        """The comparison as any format can be made of it.

        Args:
            command: The line that repeats it.
            wide: Whether the table for people shows every column.
        """
        cases = [row.case() for row in self.rows]
        if self.interrupt or isinstance(self.failure, Unavailable):  # no row of it is wrong, and yet it does not pass
            cases.append(Case("the comparison", "error", self.exit_reason))
        return Document(
            name="samestep compare",
            text=lambda: self.report(command, wide),
            record={
                "exit_code": self.exit_code,
                "exit_reason": self.exit_reason,
                "repeats": self.repeats,
                "reference": self.reference,
                "rows": [_fields(row) for row in self.rows],
            },
            rows=[
                {
                    "cell": row.cell,
                    "status": row.status,
                    "reason": row.reason,
                    "seconds": row.seconds,
                    **figures(row.result),
                }
                for row in self.rows
            ],
            cases=cases,
        )

    def report(self, command: str, wide: bool = False) -> str:
        """Everything that a comparison prints.

        Args:
            command: The line that repeats it.
            wide: Whether its table shows every column.
        """
        parts = [
            tables.caption(self.results) if self.results else "",
            self.table(wide),
            compiled(self.results),
            self._notes(),
            f"Again: {command}",
            tables.verdict(self.results),
            ranking(self.results),
        ]
        return "\n\n".join(filter(None, parts))

    def _notes(self) -> str:
        """Why rows have no result, were not judged or missed: a line for each reason, with all the rows that share it."""
        sharing: dict[tuple[str, str], list[str]] = {}
        for row in self.rows:
            if row.reason and row.status not in (REFERENCE, COMPILED):
                sharing.setdefault((row.status, row.reason), []).append(row.cell)
        return "\n".join(_sentence(cells, status, reason) for (status, reason), cells in sharing.items())


def _fields(row: Row) -> dict[str, object]:
    """A row as JSON has it."""
    return {field.name: getattr(row, field.name) for field in dataclasses.fields(row)} | {"result": row.result}


def _sentence(cells: Sequence[str], status: str, reason: str) -> str:
    """What became of some rows, and why."""
    was = "were" if len(cells) > 1 else "was"
    verbs = {FAILED: "failed", MISSED: "did not take the same step", REFERENCE: "cannot be judged"}
    verb = verbs.get(status, f"{was} {status}")
    return f"{', '.join(cells)} {verb}: {reason}"
