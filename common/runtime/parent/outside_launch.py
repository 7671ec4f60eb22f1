"""Finishes a run whose processes something else started: torchrun, a scheduler, or the user."""

import contextlib
import time
from pathlib import Path

from samestep.common.errors import WorkerFailed
from samestep.common.files.written import seal
from samestep.common.request import Launch
from samestep.common.runtime.engines.rendezvous import forget_rendezvous, read_hosts
from samestep.common.runtime.parent.judging.finishing import Finished, finish, raise_if_missed
from samestep.common.runtime.parent.launcher import Launcher
from samestep.common.runtime.process_file import DONE, read_life
from samestep.common.strategy import Run


def finish_alone(directory: Path, run: Run, launch: Launch) -> None:
    """Judges and seals, on rank 0, a run that something else started.

    Args:
        directory: The run directory.
        run: The run.
        launch: How it was prepared.

    Raises:
        ParityFailed: The run did not take the same step.
    """
    wait_for_processes(directory, run, launch.timeout_seconds)
    with Launcher() as launcher:
        roles = [spec.role for spec in run.strategy.topology(run)]
        hosts, seconds = read_hosts(directory, roles), wall_seconds(directory)
        alone = launcher.reference_rerun(launch)
        result = finish(
            Finished(directory=directory, run=run, launch=launch, seconds=seconds, alone=alone, hosts=hosts)
        )
    with contextlib.suppress(OSError):  # there is a result
        forget_rendezvous(directory, roles)
        seal(directory)
    raise_if_missed(result)


def wait_for_processes(directory: Path, run: Run, timeout_seconds: float) -> None:
    """Waits until every process has written its measurements.

    Args:
        directory: The run directory.
        run: The run; its topology names the processes.
        timeout_seconds: How long to wait.

    Raises:
        WorkerFailed: A process did not write its measurements in time.
    """
    deadline = time.monotonic() + timeout_seconds
    for spec in run.strategy.topology(run):
        while not spec.serves and read_life(directory, spec.role).phase != DONE:
            if time.monotonic() > deadline:
                raise WorkerFailed(f"{spec.role} left no measurements within {timeout_seconds:g} s.")
            time.sleep(0.05)


def wall_seconds(directory: Path) -> float:
    """Returns how long ago the run's configuration was written or its first process started, whichever was later."""
    started = min(path.stat().st_ctime for path in directory.glob("*.json"))
    return time.time() - max((directory / "config.json").stat().st_mtime, started)
