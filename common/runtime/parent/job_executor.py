"""Takes runs as jobs of an engine: submits each, follows it in its directory, and reports how it ended in the engine's words."""

import dataclasses
import os
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from samestep.common.errors import SamestepError, WorkerFailed, one_line
from samestep.common.runtime.directory import read_error
from samestep.common.runtime.parent.attempts import recorded_end
from samestep.common.runtime.parent.processes.crash_report import last_lines, read_log
from samestep.common.runtime.parent.processes.following import Progress, StepTail
from samestep.common.runtime.parent.processes.started import UNENDED
from samestep.common.strategy import Run

POLL_SECONDS = 1.0
SETTLE_SECONDS = 1.0
"""How long files of the last process may take to appear on a shared file system."""

_RULE = "-" * 74 + "\n"
"""The line that mpirun prints before and after a message."""
_KILLED = re.compile(
    r": (Killed|Segmentation fault|Aborted|Bus error|Out Of Memory)|exceeded memory limit"  # Slurm
    r"|exited on signal|exitcode *: -\d|died with <Signals"  # Open MPI, torchrun, and Ray's worker about its child
)
"""Matches what engines print about a process that was ended by a signal or by lack of memory."""


@dataclasses.dataclass(frozen=True)
class JobEnd:
    """How a job ended.

    Attributes:
        word: The engine's word for it.
        is_engines_doing: Whether the engine ended it, because of a limit, a lost node or a cancellation.
    """

    word: str
    is_engines_doing: bool = False


class Job(Protocol):
    """A job that was submitted to an engine.

    Attributes:
        name: Its name, as the engine's own commands take it.
        log: The file with everything that its processes print.
    """

    name: str
    log: Path

    def ended(self) -> JobEnd | None:
        """Returns how the job ended; None while it waits or runs."""

    def waits_for(self) -> str:
        """Returns why the job is not running yet, in the engine's words; "" if it runs."""

    def cancel(self) -> bool:
        """Cancels the job; returns whether it ended in time, with all its processes."""


Submit = Callable[[Path, Run], Job]
"""(directory, run) -> the job that was submitted to an engine for a prepared run."""


@dataclasses.dataclass(frozen=True)
class JobExecutor:
    """Executes runs as jobs of an engine, in place of a launcher's own processes.

    Attributes:
        submit: Submits a run.
    """

    submit: Submit

    def execute(self, directory: Path, run: Run, progress: Progress | None = None) -> None:
        """Submits a run and waits until it has a result.

        Args:
            directory: The directory that holds the `config.json` of the run, and says how it is started.
            run: The run.
            progress: Called at every window's end.

        Raises:
            SamestepError: The run has no result; nothing of it is still running.
        """
        with recorded_end(directory):
            job = self.submit(directory, run)
            end = follow(directory, job, progress)
            if not os.path.exists(directory / "result.json"):
                raise _failure(directory, job, end)


def follow(directory: Path, job: Job, progress: Progress | None) -> JobEnd:
    """Shows the progress of a job until it ends; an interruption cancels the job.

    Args:
        directory: The run directory.
        job: The job.
        progress: Called at every window's end.
    """
    tail, said = StepTail(directory), ""
    try:
        while (end := job.ended()) is None:
            if (reason := job.waits_for()) not in ("", said):
                said = reason
                print(f"samestep: {job.name} waits ({reason})", file=sys.stderr, flush=True)
            tail.show(progress, 0)
            time.sleep(POLL_SECONDS)
        deadline = time.monotonic() + SETTLE_SECONDS
        while not (end.is_engines_doing or os.path.exists(directory / "result.json")) and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS / 5)
        tail.show(progress, 0)
        return end
    except BaseException:
        if not job.cancel():
            UNENDED.append(job.name)
        raise


def _find_killed(text: str) -> str:
    """Finds what an engine printed about a process that was killed; "" if nothing. torchrun names its rank a line before."""
    lines = text.splitlines()
    found = [
        lines[n - line.strip().startswith("exitcode") : n + 1] for n, line in enumerate(lines) if _KILLED.search(line)
    ]
    return " ".join(" ".join(found[0]).split()) if found else ""


def _first_words(framed: str) -> str:
    """Returns the beginning of what mpirun prints between two rules, on one line."""
    return one_line(" ".join(" ".join(framed.partition(_RULE)[0].split("\n\n")[:2]).split()))


def _failure(directory: Path, job: Job, end: JobEnd) -> SamestepError:
    """Returns the error of a job without a result: the engine's word if the engine ended it, else what a process left."""
    if not directory.exists():
        return WorkerFailed(f"{directory} was removed before {job.name} had ended ({end.word})")
    role, left = read_error(directory) or ("", None)
    if left is not None and not isinstance(left, WorkerFailed) and not end.is_engines_doing:
        return left  # its one line is enough
    text = read_log(job.log)
    before, _, framed = text.partition(_RULE)
    # What other processes report is a consequence of the one that was killed.
    first = _find_killed(text) or (_first_words(framed) if left is None else f"{role}: {left}")
    said = f": {first}" if first and not end.is_engines_doing else ""
    log = f"; log: {job.log}.{last_lines(before)}" if job.log.exists() else f", and nothing was written to {job.log}."
    return WorkerFailed(f"{job.name} ended without a result ({end.word}){said}{log}")
