"""`metrics.jsonl`: the losses of a run, a line for each window of steps, or for each part of a long one, as training goes."""

import dataclasses
import math
from pathlib import Path

from samestep.common.errors import WorkerFailed
from samestep.common.files import Unreadable, read_json_lines
from samestep.common.request import MAX_STEPS

METRICS = "metrics.jsonl"
METRICS_BYTES = 2**30
"""Of this file, as of a result. They list one loss a step: 20 MB for a million steps."""


@dataclasses.dataclass(frozen=True)
class Window:
    """A line of `metrics.jsonl`.

    Attributes:
        step: The number of steps taken at its end.
        losses: Of its steps.
        seconds: What they took.
    """

    step: int
    losses: tuple[float, ...]
    seconds: float


def read_windows(directory: Path) -> list[Window]:
    """Reads `metrics.jsonl`.

    Raises:
        Unreadable: It is not there, or holds something else.
    """
    windows = []
    for line in read_json_lines(directory / METRICS, METRICS_BYTES):
        try:
            assert isinstance(line, dict)
            window = Window(int(line["step"]), tuple(map(float, line["losses"])), float(line["seconds"]))
            assert 0 < window.step <= MAX_STEPS and 0 <= window.seconds < math.inf
            windows.append(window)
        except (AssertionError, TypeError, KeyError, ValueError, OverflowError):
            raise Unreadable(f"line {len(windows) + 1} is no window of steps") from None
    return windows


def take_windows(directory: Path) -> list[Window]:
    """Reads the `metrics.jsonl` that a run has just written.

    Raises:
        WorkerFailed: It is not there, or holds something else.
    """
    try:
        return read_windows(directory)
    except Unreadable as error:
        raise WorkerFailed(f"the run took all its steps, but {directory / METRICS} cannot be read: {error}") from None


def read_losses(directory: Path) -> list[float]:
    """Reads the losses in `metrics.jsonl`; the errors are those of `take_windows`."""
    return [loss for window in take_windows(directory) for loss in window.losses]
