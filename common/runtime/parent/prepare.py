"""Makes the directory of a run, before anything is started in it."""

import datetime
import os
from pathlib import Path

from samestep.common.errors import ConfigError
from samestep.common.request import Launch
from samestep.common.run import as_config
from samestep.common.runtime.directory import open_run, refuse_run, reserve_error
from samestep.common.steps.log import METRICS, read_log
from samestep.common.strategy import Run


def prepare(run: Run, launch: Launch) -> Path:
    """Makes the directory of a run and writes `config.json`.

    Args:
        run: The run.
        launch: Names the directory, or leaves it to us.

    Raises:
        ConfigError: `--out` already holds a run, or cannot be written.
    """
    if launch.out is None:
        path = new_directory(f"{run.framework}-{run.strategy.name}-{run.workload.name.partition('+')[0]}")
    else:
        path = Path(launch.out)
    try:
        refuse_run(path)
        return open_run(path, as_config(run, launch))
    except OSError as error:
        raise ConfigError(f"--out {path} cannot be written ({error.strerror}); name another directory.") from None


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


def num_attempts(directory: Path) -> int:
    """Returns how many attempts at a run took steps.

    Raises:
        ConfigError: Its log is damaged.
    """
    if not os.path.lexists(directory / METRICS):
        return 0
    return max((window.attempt for window in read_log(directory).windows), default=0)


def new_directory(name: str) -> Path:
    """Returns a path below `runs/` that is not taken yet, with the time in front of its name."""
    stamp = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    path, number = Path("runs") / f"{stamp}-{name}", 1
    candidate = path
    while candidate.exists():
        number += 1
        candidate = path.with_name(f"{path.name}-{number}")
    return candidate
