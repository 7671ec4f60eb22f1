"""Makes the directory of a run, before anything is started in it."""

import datetime
from pathlib import Path

from samestep.common.errors import ConfigError
from samestep.common.request import Launch
from samestep.common.run import as_config
from samestep.common.runtime.directory import open_run, refuse_run
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


def new_directory(name: str) -> Path:
    """Returns a path below `runs/` that is not taken yet, with the time in front of its name."""
    stamp = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    path, number = Path("runs") / f"{stamp}-{name}", 1
    candidate = path
    while candidate.exists():
        number += 1
        candidate = path.with_name(f"{path.name}-{number}")
    return candidate
