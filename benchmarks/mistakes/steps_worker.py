"""A worker that saves the state after each step, as `state.npz` in a separate folder of the run directory."""

from collections.abc import Iterator
from pathlib import Path

from samestep.common.batch import Batch
from samestep.common.program import Program
from samestep.common.runtime.checkpoints.saving import Saver
from samestep.common.runtime.process_file import ProcessFile
from samestep.common.runtime.state_file import write_state
from samestep.common.runtime.worker import loop, worker
from samestep.common.runtime.worker.step_log import RunLog
from samestep.common.runtime.worker.traffic import Traffic
from samestep.common.runtime.worker.windows import Windows
from samestep.common.strategy import Run


def folder_of(directory: Path, steps: int) -> Path:
    """Returns the folder of the state after a number of steps.

    Args:
        directory: The run directory.
        steps: The number of steps since the start of training.
    """
    return directory / f"after-{steps}"


_train = loop.train


def train(
    program: Program,
    run: Run,
    stream: Iterator[Batch],
    first: int,
    file: ProcessFile,
    traffic: Traffic,
    log: RunLog | None = None,
    saver: Saver | None = None,
) -> Windows:
    """Trains like every worker and saves states; the arguments are those of `loop.train`."""
    step = program.step

    def take(batch: Batch) -> None:
        step(batch)
        state = program.state()
        if file.rank == 0:
            folder = folder_of(file.directory, batch.step + 1)
            folder.mkdir()
            write_state(folder, state)

    vars(program)["step"] = take
    windows = _train(program, run, stream, first, file, traffic, log, saver)
    del vars(program)["step"]
    return windows


def main(arguments: list[str]) -> int:
    """Runs the worker, which saves the states."""
    loop.train = train
    return worker.main(arguments)
