"""The processes that a script started, some of which keep their own file in its record."""

import contextlib
import multiprocessing
import os
import signal
from pathlib import Path


def kill_workers(folder: Path) -> None:
    """Kills the daemons that this process started, except those that are ranks; the process ends right after it.

    Code that watches over them is not notified, since a DataLoader would raise that its worker was killed.

    Args:
        folder: The folder of the record, in which each rank has a file of its own.
    """
    with contextlib.suppress(ValueError):  # in another thread than the main one, which alone runs handlers
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for worker in multiprocessing.active_children():
        if worker.daemon and not _has_own_file(worker.pid, folder):
            worker.kill()


def _has_own_file(pid: int | None, folder: Path) -> bool:
    """Returns whether a process has a file of a folder open that this one has not, as far as the system says it."""
    try:
        files = _open_files(pid) - _open_files("self")
    except OSError:  # no Linux, or the process has ended
        return False
    return any(os.path.dirname(each) == os.path.realpath(folder) for each in files)


def _open_files(pid: int | str | None) -> set[str]:
    return {os.path.realpath(each) for each in Path(f"/proc/{pid}/fd").iterdir()}
