"""`metrics.jsonl`: the losses of a run, a line for each window of steps or for each part of a long one."""

import dataclasses
import math
from pathlib import Path

from samestep.common.errors import ConfigError
from samestep.common.files.reading import Unreadable, read_json_lines

METRICS = "metrics.jsonl"
METRICS_BYTES = 2**30
"""Of this file, as of a result. They list one loss a step: 20 to 40 MB for a million steps."""


@dataclasses.dataclass(frozen=True)
class Window:
    """A line of the file.

    Attributes:
        step: The number of steps taken at its end.
        seconds: What its steps took.
        losses: Of its steps.
    """

    step: int
    seconds: float
    losses: tuple[float, ...]


def read_windows(directory: Path) -> list[Window]:
    """Reads the losses of a run with the seconds they took.

    Raises:
        ConfigError: The file is missing, or damaged; the message names the line.
    """
    path, windows = directory / METRICS, []
    try:
        for number, values in enumerate(read_json_lines(path, METRICS_BYTES), 1):
            windows.append(_window(values, f"line {number}", windows[-1].step if windows else None))
    except Unreadable as error:
        raise ConfigError(f"{path} cannot be read: {error}; the losses in it are lost.") from None
    return windows


def read_losses(directory: Path) -> list[float]:
    """Reads the losses of a run, one per step.

    Raises:
        ConfigError: As for `read_windows`.
    """
    return [loss for window in read_windows(directory) for loss in window.losses]


def _window(values: object, place: str, before: int | None) -> Window:
    """Makes a window of a line; the step that the line before ends at has to be where it begins."""
    try:
        step, seconds, losses = (values[name] for name in ("step", "seconds", "losses"))  # pyrefly: ignore
        numbers = all(type(each) in (int, float) and math.isfinite(each) for each in (seconds, *losses))
    except (KeyError, TypeError, OverflowError):
        raise Unreadable(f"{place} is not what a run writes") from None
    if type(step) is not int or not numbers or seconds < 0:
        raise Unreadable(f"{place} holds something else than finite numbers")
    if not losses or step - len(losses) < 0 or before not in (None, step - len(losses)):
        raise Unreadable(f"{place} does not go on where the one before ends")
    return Window(step, seconds, tuple(losses))
