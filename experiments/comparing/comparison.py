"""What a comparison found: a row for each cell, what it prints, and how it ends."""

import dataclasses
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self

from samestep.common.errors import ConfigError, Unavailable, signal_exit_code
from samestep.common.runtime.records import RunResult
from samestep.experiments.comparing.confound_report import explain_confounds, find_stops
from samestep.experiments.comparing.gate import find_failure, say_missing
from samestep.experiments.comparing.row import Row, explain_rows
from samestep.experiments.comparing.speeds import MeasuredRow, Rounds, Speed, judge_rows, speed_figures, unseparated
from samestep.experiments.printing import tables
from samestep.experiments.printing.columns import misses
from samestep.experiments.printing.command_lines import again
from samestep.experiments.printing.formats import Case, Document, write
from samestep.experiments.printing.result_columns import figures, frame
from samestep.experiments.printing.text import fill, paragraphs

if TYPE_CHECKING:
    import pandas
    import polars  # pyrefly: ignore

    from samestep.experiments.comparing.against import Against, Earlier
    from samestep.experiments.comparing.scaling import Scaling
    from samestep.experiments.page.paper.figures import Figure


@dataclasses.dataclass(frozen=True)
class Comparison:
    """The rows of a comparison, in the order of its cells, with its request.

    Attributes:
        rows: The rows, one for each cell, the oracle's first.
        named: The rows that must be possible and available, since the user named them.
        required: The rows that must be judged.
        parity: Whether parity was requested, so something must be judged.
        interrupt: The interrupt that ended it before its last row: Ctrl-C, or another signal, which it names.
        repeats: The number of rounds that were requested.
        reference: The row that the others are compared with; None if no row qualifies.
        directory: The directory of its runs.
        allowed: The confounds despite which rows are ranked.
        against: How it differs from an earlier comparison, if that was requested.
        beside: The arguments of its command that `compare.toml` does not hold.
    """

    rows: tuple[Row, ...]
    named: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    parity: bool = False
    interrupt: KeyboardInterrupt | None = None
    repeats: int = 1
    reference: str | None = None
    directory: Path | None = None
    allowed: frozenset[str] = frozenset()
    against: "Against | None" = None
    beside: tuple[str, ...] = ()

    @property
    def results(self) -> list[RunResult]:
        """The results of the rows that have one."""
        return [row.result for row in self.rows if row.result is not None]

    @functools.cached_property
    def speeds(self) -> dict[str, Speed]:
        """The speeds of the rows that have a result, judged against that of the reference row."""
        return judge_rows(self.rounds, self.reference, find_stops(self.allowed))

    @functools.cached_property
    def measured(self) -> list[MeasuredRow]:
        """The rows that have a result, with their speeds."""
        return [MeasuredRow(row.result, self.speeds[row.cell], row.cell) for row in self.rows if row.result]

    @property
    def trained(self) -> list[MeasuredRow]:
        """The measured rows without the oracle, which is not a strategy."""
        return [row for row in self.measured if row.result.is_trained]

    @functools.cached_property
    def scaling(self) -> "tuple[Scaling, ...]":
        """The scaling of the rows with several numbers of devices."""
        measured = [row for row in self.rows if row.results]
        if len({row.configuration.without(("devices", "batch_size")) for row in measured}) == len(measured):
            return ()
        from samestep.experiments.comparing.scaling import find_scaling  # here, like those below: few need it

        return find_scaling(measured, self.allowed)

    @property
    def rounds(self) -> dict[str, Rounds]:
        """The results of the rows that have any, one for each round."""
        return {row.cell: row.results for row in self.rows if row.results}

    def conclude(self, allowed: frozenset[str], earlier: "Earlier | None" = None, bit_equal: bool = False) -> Self:
        """Ranks its rows, and compares them with an earlier comparison.

        Args:
            allowed: The confounds despite which rows are ranked.
            earlier: The earlier comparison, if any.
            bit_equal: Whether its steps must equal those of the earlier one in every bit.
        """
        if earlier is None:
            return dataclasses.replace(self, allowed=allowed, against=None)
        from samestep.experiments.comparing.against import hold

        return dataclasses.replace(self, allowed=allowed, against=hold(self.rounds, earlier, allowed, bit_equal))

    failure = property(find_failure)
    missing = property(say_missing)

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
            *cells: Rows that must have been judged, in addition to those that were required when it was started.

        Raises:
            ConfigError: The comparison has no such row.
            ParityFailed: A row did not take the same step.
            WorkerFailed: A row failed.
            Unavailable: A row that was named is unavailable or not possible, a required one was not judged, or none was.
        """
        known = [row.cell for row in self.rows]
        for cell in cells:
            if cell not in known:
                raise ConfigError(f"the comparison has no row '{cell}'; it has {', '.join(known)}.")
        if failure := dataclasses.replace(self, required=(*self.required, *cells)).failure:
            raise failure

    def table(self, wide: bool = False) -> str:
        """Returns the table: one line for each row, with those without a result last.

        Args:
            wide: Whether it shows every column, even if the screen is narrower.
        """
        failures = [(row.cell, row.status) for row in self.rows if row.result is None]
        return tables.comparison(self.measured, failures, None, wide)

    def to_json(self) -> str:
        """Returns the comparison as `samestep compare --format json` prints it: every row with its whole result."""
        return write(self.document(""), "json")

    def frame(self, library: Literal["pandas", "polars"] = "pandas") -> "pandas.DataFrame | polars.DataFrame":
        """Returns a data frame of this library, with a row for each cell and the columns of `--format csv`.

        Raises:
            ConfigError: There is no such library.
            Unavailable: The library is not installed.
        """
        return frame(self.document("").rows, library)

    def plot(self, figure: str = "tradeoff") -> "Figure":
        """Draws "tradeoff" (speed by memory), "speed", "time", "memory", "sent", "losses", "deviations" or "scaling".

        Raises:
            ConfigError: There is no such figure, or nothing was measured that it shows.
        """
        from samestep.experiments.page.paper.figures import plot

        return plot(self, figure)

    def document(self, command: str, wide: bool = False) -> Document:
        """Returns the comparison as a document for any format.

        Args:
            command: The command that repeats it.
            wide: Whether the table for people shows every column.
        """
        cases = [row.case() for row in self.rows]
        cases += self.against.cases() if self.against else []
        if self.interrupt or isinstance(self.failure, Unavailable):  # it did not pass, though no row is wrong
            cases.append(Case("the comparison", "error", self.exit_reason))
        return Document(
            name="samestep compare",
            text=lambda: self.report(command, wide),
            record={
                "exit_code": self.exit_code,
                "exit_reason": self.exit_reason,
                "repeats": self.repeats,
                "reference": self.reference,
                "allowed": sorted(self.allowed),
                "against": self.against,
                "scaling": self.scaling,
                "rows": [_fields(row) | {"speed": self.speeds.get(row.cell)} for row in self.rows],
            },
            rows=[
                {
                    "cell": row.cell,
                    "status": row.status,
                    "reason": row.reason,
                    "seconds": row.seconds,
                    **figures(row.result),
                    **speed_figures(self.speeds.get(row.cell)),
                }
                for row in self.rows
            ],
            cases=cases,
        )

    def report(self, command: str, wide: bool = False) -> str:
        """Returns everything that a comparison prints.

        Args:
            command: The command that repeats it; "" leaves it out.
            wide: Whether its table shows every column.
        """
        return paragraphs(
            tables.caption(self.measured),
            self.table(wide),
            unseparated(self.speeds, self.reference),
            explain_confounds(self.rounds, self.reference, self.allowed),
            tables.compiled_steps(self.results),
            "\n".join(map(fill, explain_rows(self.rows))),
            self.missing,
            "\n".join(filter(None, [again(command), f"Runs: {self.directory}" if self.directory else ""])),
            fill(tables.verdict(self.results)),
            *self._asked_beside(),
        )

    def _asked_beside(self) -> Iterator[str]:
        """Yields the text on scaling and the text on an earlier comparison, if they were requested."""
        if scaling := self.scaling:
            from samestep.experiments.printing.scaling_report import write_scaling

            yield write_scaling(scaling)
        if self.against:
            from samestep.experiments.printing.against_report import write_report

            yield write_report(self.against)


def _fields(row: Row) -> dict[str, object]:
    own = {name: getattr(row, name) for name in ("cell", "status", "reason", "results", "seconds")}
    return own | {"result": row.result, "missed_predictions": misses(row.result) if row.result else {}}
