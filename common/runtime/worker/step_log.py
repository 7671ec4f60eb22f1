"""The step log that our loop writes on rank 0, which has the losses of whole batches and the time of each step."""

import contextlib
import hashlib
import math
import platform
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from samestep.common.batch import Batch
from samestep.common.errors import Diverged
from samestep.common.request import Launch
from samestep.common.runtime.checkpoints.resuming import describe_program
from samestep.common.runtime.imports import deciding_packages, installed_version
from samestep.common.steps.log import Header, TensorInfo, Window
from samestep.common.steps.writing import LogWriter
from samestep.common.strategy import Run
from samestep.common.workload.data.dataset import Split


class RowDigests:
    """Digests batches of a data set. Each example is hashed once, the first time that a batch has it.

    A batch's digest is the sum of its examples' hashes mod 2**64. So the order of the examples does not matter, and the digests
    of shards and of micro-batches add up to that of their batch.
    """

    def __init__(self, inputs: np.ndarray, targets: np.ndarray) -> None:
        """Starts without hashes.

        Args:
            inputs: [examples, ...], before they are cast to the dtype of a run.
            targets: [examples, ...].
        """
        self._arrays = inputs, targets
        self._hashes = np.zeros(len(inputs), np.uint64)
        self._is_hashed = np.zeros(len(inputs), bool)

    def digests(self, batches: Sequence[Batch]) -> tuple[int, ...]:
        """Digests batches of one size together, since one call for each would cost more than the sum itself."""
        indices = np.stack([batch.indices for batch in batches])
        new = np.sort(indices[~self._is_hashed[indices]])
        new = new[np.diff(new, prepend=-1) > 0]  # np.unique imports numpy.ma, a tenth of a short run's time
        if len(new):
            self._hashes[new] = [
                _hash(parts) for parts in zip(*(_rows(array[new]) for array in self._arrays), strict=True)
            ]
            self._is_hashed[new] = True
        return tuple(self._hashes[indices].sum(axis=1, dtype=np.uint64).tolist())  # wraps around at 2**64


def _rows(array: np.ndarray) -> list[bytes]:
    data, size = array.tobytes(), array[:1].nbytes
    return [data[start * size : (start + 1) * size] for start in range(len(array))]


def _hash(parts: Sequence[bytes]) -> int:
    return int.from_bytes(hashlib.blake2b(b"".join(parts), digest_size=8).digest())


class RunLog(contextlib.AbstractContextManager["RunLog"]):
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

    def __exit__(self, *_: object) -> None:
        self._writer.__exit__(None, None, None)

    def add(self, part: Sequence[Batch], seconds: float, losses: Sequence[float]) -> None:
        """Adds steps, and digests their batches while no clock runs.

        Args:
            part: The batches of the steps.
            seconds: How long the steps took.
            losses: One loss for each step.

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
    """Returns the versions of Python and of the packages that decide a run's numbers."""
    packages = (*deciding_packages(run.framework), *filter(None, [run.strategy.package]))
    found = {package: installed_version(package) for package in packages}
    return {"python": platform.python_version()} | {package: version for package, version in found.items() if version}
