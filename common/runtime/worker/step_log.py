"""The log that our loop writes of a run: of rank 0, which alone knows the losses of whole batches."""

import math
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from samestep.common.batch import Batch
from samestep.common.errors import Diverged
from samestep.common.request import Launch
from samestep.common.runtime.checkpoints.resuming import describe_program
from samestep.common.runtime.imports import deciding_packages, installed_version
from samestep.common.steps.digests import RowDigests
from samestep.common.steps.log import Header, TensorInfo, Window
from samestep.common.steps.writing import LogWriter
from samestep.common.strategy import Run
from samestep.common.workload.data.dataset import Split


class RunLog:
    """Adds the windows of a run to its log. Use it as a context manager."""

    def __init__(self, directory: Path, run: Run, launch: Launch, split: Split) -> None:
        """Opens the log.

        Args:
            directory: The directory of the run.
            run: What is trained.
            launch: How it was started.
            split: The data set as it was read, whose rows are the same in every dtype of a run.
        """
        self._run = run
        self._digests = RowDigests(split.train_inputs, split.train_targets)
        self._writer = LogWriter(directory, header_of(run, launch))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._writer.__exit__(None, None, None)

    def add(self, part: Sequence[Batch], seconds: float, losses: Sequence[float]) -> None:
        """Adds steps; their batches are digested now, while no clock runs.

        Args:
            part: Their batches.
            seconds: What they took.
            losses: One per step.

        Raises:
            Diverged: A loss is not finite.
        """
        end = part[-1].step + 1
        rates = tuple(self._run.optimizer_at(batch.step + 1).learning_rate for batch in part)
        digests = self._digests.digests(part)
        self._writer.add(Window(end, seconds, tuple(losses), batches=digests, scalars={"learning_rate": rates}))
        for batch, loss in zip(part, losses, strict=True):
            if not math.isfinite(loss):
                look = (
                    "look at the loss, the initial weights and the data"
                    if batch.step == 0
                    else "try a smaller --learning-rate"
                )
                raise Diverged(f"the loss of step {batch.step} is {loss}; {look}.")


def header_of(run: Run, launch: Launch) -> Header:
    """Makes the header of a run's log.

    Args:
        run: What is trained.
        launch: How it was started.
    """
    params = run.workload.model.params()
    tensors = tuple(TensorInfo(name, param.shape, run.dtype, param.role) for name, param in params.items())
    return Header(describe_program(run, launch), versions_of(run), tensors)


def versions_of(run: Run) -> dict[str, str]:
    """Finds the versions of Python and of the packages that decide a run's numbers."""
    packages = (*deciding_packages(run.framework), *filter(None, [run.strategy.package]))
    found = {package: installed_version(package) for package in packages}
    return {"python": platform.python_version()} | {package: version for package, version in found.items() if version}
