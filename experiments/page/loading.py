"""Reads run directories of any origin for a report; those that cannot be read are listed, and the rest is reported."""

import dataclasses
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from samestep.common.cell import Cell
from samestep.common.errors import ConfigError
from samestep.common.request import RunConfig
from samestep.common.runtime.directory import read_config, read_error
from samestep.common.runtime.integrity import check_asked, check_error
from samestep.common.runtime.records import RunResult, load_result
from samestep.common.workload.table import title
from samestep.experiments.cleaning.disk_usage import is_waiting
from samestep.experiments.comparing import comparison_file, stored
from samestep.experiments.comparing.comparison import Comparison
from samestep.experiments.comparing.row import FAILED, NOT_RUN, Row
from samestep.experiments.page.loaded import Group, Loaded, Problem, make_group
from samestep.experiments.printing.text import sharing
from samestep.experiments.printing.trace_file import load_trace

_RUN = ("result.json", "error.json", "config.json")
"""A directory with any of these files is a run directory."""
_DEEPEST = 3
"""The depth to which folders below a named one are searched; a comparison has a folder for each cell."""
_VARYING = ("devices", "dtype", "seed", "threads")
"""The fields in which single runs of one strategy may differ, which their names then show."""
CUT_OFF = "it was cut off before it ended, or has not ended yet"
WAITING = "it was prepared and waits to be started"
NOTHING = "holds no run; name the directory of a run, of a comparison, or one that holds some"


@dataclasses.dataclass(frozen=True)
class _SingleRun:
    """A run that belongs to no comparison.

    Attributes:
        path: Its directory.
        config: Its request.
        result: Its result; None if it has none.
        reason: Why it has no result.
    """

    path: Path
    config: RunConfig
    result: RunResult | None = None
    reason: str = ""


@dataclasses.dataclass
class _Found:
    """The comparisons, runs and problems found so far."""

    comparisons: list[Path] = dataclasses.field(default_factory=list)
    runs: list[_SingleRun] = dataclasses.field(default_factory=list)
    problems: list[Problem] = dataclasses.field(default_factory=list)


def load(paths: Sequence[Path], allowed: frozenset[str] = frozenset()) -> Loaded:
    """Reads runs and comparisons.

    Args:
        paths: Directories: of runs, of comparisons, or of several of them.
        allowed: The confounds despite which rows are ranked.

    Raises:
        ConfigError: None of them holds a run that can be reported.
    """
    found = _Found()
    for path in dict.fromkeys(paths):
        _read(path, found)
    groups: list[Group] = []
    for directory in found.comparisons:
        try:
            damaged: list[tuple[Path, str]] = []
            groups.append(_group(directory, stored.load(directory, damaged).conclude(allowed), _count(groups)))
            found.problems += [Problem(*each) for each in damaged]
        except (ConfigError, OSError) as error:
            found.problems.append(Problem(directory, str(error)))
    for key, members in sharing((_setting(run.config), run) for run in found.runs).items():
        groups.append(_group_of_runs(key, members, _count(groups)))
    if not groups:
        reasons = "; ".join(f"{problem.place}: {problem.message.removesuffix('.')}" for problem in found.problems)
        raise ConfigError(f"there is nothing to report: {reasons}.")
    return Loaded(tuple(groups), (*found.problems, *_damaged_traces(groups)))


def _damaged_traces(groups: Sequence[Group]) -> Iterator[Problem]:
    """Yields a problem for each trace that cannot be drawn; its row is reported without the trace."""
    for directory in (each for group in groups for entry in group.entries for each in entry.directories):
        try:
            load_trace(directory)
        except ConfigError as error:
            yield Problem(directory, str(error))


def loaded_comparison(comparison: Comparison) -> Loaded:
    """Returns a comparison that was just run, for a report on it alone."""
    return Loaded((_group(comparison.directory or Path(), comparison, 0),))


def _count(groups: Sequence[Group]) -> int:
    return sum(len(group.entries) for group in groups)


# --- what there is ----------------------------------------------------------------------------------------------------


def _read(path: Path, found: _Found) -> None:
    try:
        if not path.is_dir():
            found.problems.append(Problem(path, "is not a directory" if path.exists() else "does not exist"))
            return
        places = list(_places(path, _DEEPEST))
    except OSError as error:
        found.problems.append(Problem(path, f"cannot be read ({error.strerror})"))
        return
    if not places:
        found.problems.append(Problem(path, NOTHING))
    for place in places:
        if os.path.lexists(place / comparison_file.NAME):
            found.comparisons.append(place)
        else:
            _read_run(place, found)


def _places(path: Path, deepest: int) -> Iterator[Path]:
    """Yields the runs and comparisons in a folder; folders inside of one are not searched."""
    if any(os.path.lexists(path / name) for name in (comparison_file.NAME, *_RUN)):
        yield path
    elif deepest:
        for folder in sorted(each for each in path.iterdir() if each.is_dir()):
            yield from _places(folder, deepest - 1)


def _read_run(path: Path, found: _Found) -> None:
    try:
        if os.path.lexists(path / "result.json"):
            result = load_result(path)
            found.runs.append(_SingleRun(path, result.config, result))
        else:
            check_error(path)
            check_asked(config := read_config(path))
            reason = str(error[1]) if (error := read_error(path)) else WAITING if is_waiting(path) else CUT_OFF
            found.runs.append(_SingleRun(path, config, reason=reason))
    except ConfigError as error:
        found.problems.append(Problem(path, str(error)))


# --- groups -----------------------------------------------------------------------------------------------------------


def _group(directory: Path, comparison: Comparison, first: int) -> Group:
    places = {
        row.cell: [
            stored.run_directory(directory, row.configuration, number)
            for number in range(1, 1 + max(1, len(row.results)))
        ]
        for row in comparison.rows
    }
    return make_group(directory.resolve().name, comparison, places, first)


def _setting(config: RunConfig) -> str:
    """Returns the setting of a run, as text; runs with different settings cannot share a figure."""
    rate = "" if config.learning_rate is None else f" at rate {config.learning_rate:g}"
    trained = Path(config.model).stem if config.model else title(config.workload, config.data)
    return f"runs of {trained}, batch {config.batch_size}, {config.optimizer}{rate}"


def _group_of_runs(name: str, runs: Sequence[_SingleRun], first: int) -> Group:
    """Makes a group of single runs. Runs of the same request are the rounds of a row."""
    varying = [field for field in _VARYING if len({getattr(run.config, field) for run in runs}) > 1]
    own = [{field: getattr(run.config, field) for field in varying} for run in runs]
    cells = sharing((Cell.of(run.config).extended(each), run) for run, each in zip(runs, own, strict=True))
    rows = [each for cell, members in cells.items() for each in _rows(cell, members)]
    places = {row.cell: [run.path for run in members] for row, members in rows}
    return make_group(name, Comparison(tuple(row for row, _ in rows)), places, first)


def _rows(cell: Cell, runs: Sequence[_SingleRun]) -> Iterator[tuple[Row, Sequence[_SingleRun]]]:
    """Yields the row of a configuration, and an extra row for each run without a result if others have one."""
    done, rest = [run for run in runs if run.result], [run for run in runs if not run.result]
    if done:
        yield Row.of(cell, *(run.result for run in done if run.result)), done
        yield from ((Row(cell, _status(run), run.reason, number=n), [run]) for n, run in enumerate(rest, 2))
    else:
        yield Row(cell, _status(rest[0]), rest[0].reason), rest


def _status(run: _SingleRun) -> str:
    return NOT_RUN if run.reason == WAITING else FAILED
