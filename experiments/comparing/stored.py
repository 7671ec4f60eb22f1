"""The directory of a comparison: `compare.toml`, and for each cell and round a run directory: `torch-ddp+devices=4/2`."""

import dataclasses
import itertools
import os
import urllib.parse
from collections.abc import Mapping
from pathlib import Path

from samestep.common.cell import Cell
from samestep.common.errors import ConfigError, SamestepError, Unavailable, WorkerFailed
from samestep.common.files.access import check_open
from samestep.common.files.writing import make_folder
from samestep.common.runtime.directory import read_error
from samestep.common.runtime.integrity import check_error
from samestep.common.runtime.records import RunResult, load_result
from samestep.experiments.comparing import comparison_file
from samestep.experiments.comparing.comparison import Comparison
from samestep.experiments.comparing.comparison_request import Given, describe
from samestep.experiments.comparing.plan import Plan, make_plan, refuse_other, request_of
from samestep.experiments.comparing.row import FAILED, IMPOSSIBLE, NOT_RUN, UNAVAILABLE, Row


def run_directory(directory: Path, cell: Cell, number: int) -> Path:
    """Returns the run directory of a cell.

    Args:
        directory: The directory of the comparison.
        cell: The cell that is run.
        number: The number of the round, from 1; the oracle runs in none.
    """
    own = directory / urllib.parse.quote(str(cell).replace(":", "-", 1), safe="+=,")
    return own if cell.is_oracle else own / str(number)


def make_place(run: Path, directory: Path) -> None:
    """Makes the folder that a cell's rounds are in.

    Args:
        run: The run of one of the rounds, from `run_directory`.
        directory: The directory of the comparison.
    """
    if run.parent != directory:
        make_folder(run.parent, directory)


@dataclasses.dataclass
class Found:
    """The results of a cell's runs so far.

    Attributes:
        results: The results by the number of the round, from 1.
        error: The error that ended a round, or kept the cell from being run.
        seconds: The seconds that each run took, including judging it.
    """

    results: dict[int, RunResult] = dataclasses.field(default_factory=dict)
    error: SamestepError | None = None
    seconds: list[float] = dataclasses.field(default_factory=list)

    @property
    def is_over(self) -> bool:
        """Whether no further round is useful, because one failed or did not take the same step."""
        return self.error is not None or any(each.parity.passed is False for each in self.results.values())

    def row(self, cell: Cell) -> Row:
        """Makes the row of the cell, with its rounds up to the first missing one."""
        numbers = itertools.takewhile(lambda number: number in self.results, itertools.count(1))
        results, seconds = [self.results[number] for number in numbers], sum(self.seconds)
        if self.error is not None:
            kinds = {Unavailable: UNAVAILABLE, ConfigError: IMPOSSIBLE}
            status = next((status for kind, status in kinds.items() if isinstance(self.error, kind)), FAILED)
            return Row(cell, status, str(self.error), seconds=seconds)
        return Row.of(cell, *results, seconds=seconds) if results else Row(cell, NOT_RUN, "interrupted")


def load(directory: Path, damaged: list[tuple[Path, str]] | None = None) -> Comparison:
    """Reads a comparison from its directory, as far as it got.

    Args:
        directory: The directory that was given with `--out`.
        damaged: As in `find`.

    Raises:
        ConfigError: It holds no comparison, or one of its files is damaged.
    """
    plan = make_plan(describe(read_asked(directory)))
    return compose(plan, directory, {cell: find(directory, cell, plan, damaged) for cell in plan.cells})


def read_asked(directory: Path) -> Given:
    """Reads the request of a comparison from its directory.

    Raises:
        ConfigError: It holds no comparison, or its file is damaged.
    """
    check_open(directory)
    path = directory / comparison_file.NAME
    if not os.path.exists(path):  # no error for a long path
        raise ConfigError(
            f"{directory} is not a comparison: it has no {path.name}; name what `samestep compare` wrote."
        )
    return comparison_file.read_file(path)


def compose(
    plan: Plan, directory: Path, found: Mapping[Cell, Found], interrupt: KeyboardInterrupt | None = None
) -> Comparison:
    """Makes a comparison from the results.

    Args:
        plan: The plan of the comparison.
        directory: The directory of the comparison.
        found: The results so far of each cell.
        interrupt: The interrupt that ended it early.
    """
    rows = tuple(found[cell].row(cell) for cell in plan.cells)
    trained = (row.cell for row in rows if row.result and row.result.is_trained)
    return Comparison(
        rows,
        tuple(map(str, plan.named)),
        tuple(map(str, plan.required)),
        plan.asked.base.parity is True,
        interrupt,
        plan.asked.repeats,
        plan.asked.reference or next(trained, None),
        directory,
    )


def find(directory: Path, cell: Cell, plan: Plan, damaged: list[tuple[Path, str]] | None = None) -> Found:
    """Reads the results of a cell's runs.

    Args:
        directory: The directory of the comparison.
        cell: A cell of it.
        plan: Its plan.
        damaged: Receives the directories of results that are damaged or belong to another cell, with what is wrong; their
            cell then counts as failed.

    Raises:
        ConfigError: There is such a result, and `damaged` was not given.
    """
    found, wanted = Found(), request_of(cell, plan)
    for number in range(1, plan.rounds(cell) + 1):
        run = run_directory(directory, cell, number)
        try:
            if os.path.lexists(run / "result.json"):
                result = load_result(run)
                refuse_other(run, result, wanted)
                found.results[number] = result
                found.seconds.append(_took_seconds(run))
                continue
            if damaged is not None:
                check_error(run)
            if error := read_error(run):
                found.error = found.error or error[1]
        except ConfigError as error:
            if damaged is None:
                raise
            damaged.append((run, str(error)))
            found.error = WorkerFailed(str(error))
    return found


def _took_seconds(run: Path) -> float:
    """Returns the seconds of a finished run, from its first file to its last; 0 for a result without the other files."""
    first, last = run / "config.json", run / "result.json"
    return max(0.0, last.stat().st_mtime - first.stat().st_mtime) if first.exists() else 0.0
