"""Which files the processes of a script have open."""

import os
from pathlib import Path


def has_own_file(pid: int | None, folder: Path) -> bool:
    """Returns whether a process has a file of a folder open that this one has not, as far as the system says it.

    Args:
        pid: The process, which has what this one had when it was forked off.
        folder: The folder.
    """
    try:
        files = _open_files(pid) - _open_files("self")
    except OSError:  # no Linux, or the process has ended
        return False
    return any(os.path.dirname(each) == os.path.realpath(folder) for each in files)


def _open_files(pid: int | str | None) -> set[str]:
    return {os.path.realpath(each) for each in Path(f"/proc/{pid}/fd").iterdir()}
