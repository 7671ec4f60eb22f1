"""The processes that a script has started, some of which write their own file in its record."""

import contextlib
import multiprocessing
import os
import signal
from pathlib import Path


def kill_workers(folder: Path) -> None:
    """Kills the daemons that this process started, except those that are ranks; this process ends right afterwards.

    Code that watches the daemons is not notified, since a DataLoader would raise an error that its worker was killed.

    Args:
        folder: The directory of the record, in which each rank has its own file.
    """
    with contextlib.suppress(ValueError):  # only the main thread may set handlers
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for worker in multiprocessing.active_children():
        if worker.daemon and not _has_own_file(worker.pid, folder):
            worker.kill()


def _has_own_file(pid: int | None, folder: Path) -> bool:
    """Returns whether a process has a file in a folder open that this process does not, as far as the system shows it."""
    try:
        files = _open_files(pid) - _open_files("self")
    except OSError:  # not Linux, or the process has ended
        return False
    return any(os.path.dirname(each) == os.path.realpath(folder) for each in files)


def _open_files(pid: int | str | None) -> set[str]:
    return {os.path.realpath(each) for each in Path(f"/proc/{pid}/fd").iterdir()}
