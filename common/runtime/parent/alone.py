"""What a launcher does last, where something else started the run's processes: torchrun, a scheduler, or a hand."""

from pathlib import Path

from samestep.common.request import Launch
from samestep.common.runtime.parent import verdict
from samestep.common.runtime.parent.launcher import Launcher
from samestep.common.strategy import Run


def finish_alone(directory: Path, run: Run, launch: Launch) -> None:
    """Does a launcher's last duties, on rank 0 of a run that something else started (torchrun, by hand).

    Args:
        directory: The run directory.
        run: The run.
        launch: How it was prepared.

    Raises:
        ParityFailed: It was not the same step.
    """
    verdict.wait_for_processes(directory, run, launch.timeout_seconds)
    with Launcher() as launcher:
        result = verdict.finish(directory, run, launch, verdict.wall_seconds(directory), launcher.run_oracle, None)
    verdict.raise_if_missed(result)
