"""Refuses directories that the user may not read or write, before anything is said of what they hold or lack."""

import os
from pathlib import Path

from samestep.common.errors import ConfigError


def why_closed(directory: Path, writes: bool = False) -> str:
    """Says why the user cannot use a directory; "" if nothing keeps them from it, or if it is not there.

    Args:
        directory: The directory.
        writes: Whether it has to be written, and not only read.
    """
    try:
        os.lstat(directory)
    except PermissionError as error:
        return f"cannot be read ({error.strerror})"
    except (OSError, ValueError):
        return ""
    for verb, mode in (("read", os.R_OK | os.X_OK), ("written", os.W_OK))[: 1 + writes]:
        if os.path.isdir(directory) and not os.access(directory, mode):
            return f"cannot be {verb} (Permission denied)"
    return ""


def check_open(directory: Path, writes: bool = False) -> None:
    """Refuses a directory that the user cannot use; the arguments are those of `why_closed`.

    Raises:
        ConfigError: The user may not read it, or write into it.
    """
    if why := why_closed(directory, writes):
        raise ConfigError(f"{directory} {why}; ask its owner, or name another directory.")


def check_there(path: Path) -> None:
    """Refuses a path that leads nowhere, or to a directory that the user may not read.

    Raises:
        ConfigError: Nothing is there, or the user may not read it.
    """
    check_open(path)
    if not os.path.lexists(path):
        raise ConfigError(f"{path} is not there; name a directory that is.")
