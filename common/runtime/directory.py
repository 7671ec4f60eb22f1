"""Where a new run may be written."""

import os
from pathlib import Path

from common.errors import ConfigError


def refuse_taken(run: Path) -> None:
    """Keeps a run from being overwritten.

    Raises:
        ConfigError: The directory holds one, or cannot be one.
    """
    try:
        if any((run / name).exists() for name in ("config.json", "result.json", "error.json")):
            raise ConfigError(f"--out {run} already holds a run; nothing was overwritten: name another directory.")
        nearest = next(path for path in (run, *run.absolute().parents) if path.exists())
    except OSError as error:
        raise ConfigError(f"--out {run} cannot be written ({error.strerror}); name another directory.") from None
    if not (nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK)):
        what = "is no directory" if not nearest.is_dir() else "is not writable"
        raise ConfigError(f"--out {run} cannot be written ({nearest} {what}); name another directory.")
