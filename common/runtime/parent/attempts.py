"""Attempts at a run: the next one goes on from its newest checkpoint, which the workers find themselves."""

import itertools
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from samestep.common.errors import ConfigError, WorkerFailed
from samestep.common.runtime.directory import reserve_error
from samestep.common.runtime.topology import RESTARTS
from samestep.common.steps.log import METRICS, read_log


class Begin(Protocol):
    """Starts the processes of a run, and waits for them."""

    def __call__(self, launched_at: float, environment: dict[str, str]) -> None: ...  # noqa: D102


def attempt(directory: Path, restarts: int, launched_at: float, environment: Mapping[str, str], begin: Begin) -> None:
    """Takes a run to its end; if a process dies or hangs, all are started again, as often as was asked for.

    Args:
        directory: The run directory.
        restarts: How often.
        launched_at: When the first attempt began.
        environment: Added to every process's.
        begin: Starts an attempt.

    Raises:
        SamestepError: The last attempt failed, or one in a way that another would repeat.
    """
    first = _num_attempts(directory)
    for number in itertools.count(first):
        try:
            return begin(launched_at, {**environment, RESTARTS: str(number)})
        except WorkerFailed as error:
            left = restarts - (number - first)
            if not left:
                raise
            print(f"samestep: {error}; starts again ({left - 1} more)", file=sys.stderr, flush=True)
            begin_again(directory)
            launched_at = time.time()


def check_unfinished(directory: Path) -> Path:
    """Refuses to go on with what is no run that was cut off; returns its directory.

    Args:
        directory: The directory.

    Raises:
        ConfigError: It holds a finished run, or none.
    """
    if os.path.lexists(directory / "result.json"):
        raise ConfigError(f"--resume {directory}: it holds a finished run; --start-from goes on from where it ended.")
    if not os.path.lexists(directory / "config.json"):
        raise ConfigError(f"--resume {directory}: it holds no run; name a directory with a config.json.")
    return directory


def begin_again(directory: Path) -> Path:
    """Makes a run that was cut off ready for another attempt; returns its directory.

    Args:
        directory: The run directory.

    Raises:
        ConfigError: It cannot be written, or somebody removed it.
    """
    try:
        reserve_error(directory)
    except OSError as error:
        raise ConfigError(f"{directory} cannot be written ({error.strerror}); the run cannot go on there.") from None
    return directory


def _num_attempts(directory: Path) -> int:
    """Returns how many attempts at a run took steps."""
    if not os.path.lexists(directory / METRICS):
        return 0
    return max((window.attempt for window in read_log(directory).windows), default=0)
