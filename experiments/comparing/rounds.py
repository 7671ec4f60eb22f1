"""Measures the rows of a comparison in rounds: one run after the other, each in fresh processes of a warm fork server."""

import contextlib
import dataclasses
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from samestep.common.catalog import require
from samestep.common.cell import Cell
from samestep.common.errors import ConfigError, Refused, SamestepError, WorkerFailed
from samestep.common.files.access import check_open
from samestep.common.files.removing import discard
from samestep.common.request import Launch
from samestep.common.runtime.directory import read_error, reserve_error, write_error
from samestep.common.runtime.parent.launcher import Launcher
from samestep.common.runtime.parent.processes.following import Progress
from samestep.common.strategy import Run
from samestep.experiments.comparing.plan import Plan
from samestep.experiments.comparing.stored import Found, make_place, run_directory
from samestep.experiments.printing.progress import Timetable, show_runs

Ready = tuple[Run, Launch]
"""What to run, and how to start it."""


def measure(
    plan: Plan,
    ready: Mapping[Cell, Ready],
    found: Mapping[Cell, Found],
    directory: Path,
    launcher: Launcher,
    quiet: bool,
) -> KeyboardInterrupt | None:
    """Runs every cell once in each round, except for runs that have a result, and adds the results.

    A cell that fails or misses parity runs no further round.

    Args:
        plan: The cells and the rounds.
        ready: The cells that can be run.
        found: The earlier results of each cell; it grows with each run.
        directory: The directory of the comparison.
        launcher: Starts the runs.
        quiet: Whether to print nothing; otherwise the progress goes to stderr.

    Returns:
        The interrupt that ended it early; None if none did.

    Raises:
        Refused: An engine refuses the first run, so the request is wrong as a whole.
    """
    rounds = [
        (cell, number) for number in range(1, plan.asked.repeats + 1) for cell in ready if number <= plan.rounds(cell)
    ]
    todo = [(cell, number) for cell, number in rounds if number not in found[cell].results]
    took = {str(cell): [*each.seconds] for cell, each in found.items() if not cell.is_oracle}
    timetable = Timetable([str(cell) for cell, _ in todo], took)
    try:
        _warm(launcher, [ready[cell] for cell, _ in todo], quiet)
        with contextlib.nullcontext() if quiet else show_runs(timetable) as begin:
            for cell, number in todo:
                if found[cell].is_over:
                    timetable.finish()
                    continue
                run, launch = ready[cell]
                launch = dataclasses.replace(launch, out=str(run_directory(directory, cell, number)))
                label = f"{cell}, round {number} of {plan.asked.repeats}" if plan.rounds(cell) > 1 else str(cell)
                seconds = _take(
                    launcher, directory, (run, launch), found[cell], number, begin(run, label) if begin else None
                )
                if (cell, number) == todo[0] and isinstance(why := found[cell].error, Refused):
                    raise why
                timetable.finish(None if cell.is_oracle else seconds)  # its time says nothing about others
                tell("; ".join(filter(None, (f"{label}: {seconds:.1f} s", timetable.describe()))), quiet)
    except KeyboardInterrupt as interrupt:
        return interrupt
    return None


def _warm(launcher: Launcher, todo: list[Ready], quiet: bool) -> None:
    """Imports the frameworks of the runs beforehand, so no run is timed during an import."""
    frameworks = dict.fromkeys(run.framework for run, _ in todo)
    if frameworks and launcher.executor is None:
        tell(f"Importing {', '.join(require(framework) for framework in frameworks)} ...", quiet)
    for threads, seconds in dict.fromkeys((run.threads, launch.timeout_seconds) for run, launch in todo):
        launcher.warm(dict.fromkeys(run.framework for run, _ in todo if run.threads == threads), threads, seconds)


def _take(
    launcher: Launcher, comparison: Path, ready: Ready, found: Found, number: int, progress: Progress | None
) -> float:
    """Does one run and adds its result or error; returns its seconds."""
    started, (run, launch) = time.time(), ready
    directory = Path(launch.out or "")
    try:
        make_place(directory, comparison)
        check_open(directory, writes=True)
        discard(directory)  # an interrupted run is measured again
        found.results[number] = launcher.run(run, launch, progress, started)
    except (SamestepError, OSError) as error:
        found.error = _as_failure(directory, error)
    except KeyboardInterrupt:
        with contextlib.suppress(OSError):  # on a full disk
            if directory.exists():
                reserve_error(directory)  # it was interrupted, which is not a failure
        raise
    found.seconds.append(time.time() - started)
    return found.seconds[-1]


def _as_failure(directory: Path, error: SamestepError | OSError) -> SamestepError:
    """Turns the refusal of a run that had begun into a failure: its request was checked before, so it is a disk or a file.

    Only an engine checks a run when it is given it.
    """
    if isinstance(error, Refused) or not isinstance(error, ConfigError | OSError):
        return error
    failure = WorkerFailed(str(error))
    role, _ = read_error(directory) or ("parent", None)
    write_error(directory, role, failure, first=False)  # so `load` finds the printed reason
    return failure


def tell(line: str, quiet: bool) -> None:
    """Prints a line for people to stderr.

    Args:
        line: What to print.
        quiet: Whether to print nothing.
    """
    if not quiet:
        print(line, file=sys.stderr, flush=True)
