"""Makes processes end with the one that started them, even if processes between the two have ended before.

A process that adopts orphans becomes the parent of every descendant whose own parent has ended, even of a daemon. It can end
all of them by their ids, since the id of a child is not used again until its parent has waited for it.

References:
    PR_SET_CHILD_SUBREAPER and PR_SET_PDEATHSIG in prctl(2); /proc/PID/task/TID/children in proc(5).
"""

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from samestep.common.runtime.processes import look

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_libc = ctypes.CDLL(None)
GRACE_SECONDS = 0.5
"""How long processes that have lost their parent may take to clean up; Python's resource tracker, for one, then removes shared
memory and ends."""
END_SECONDS = 10.0
"""How long the system may take to remove a process that was killed; it frees the memory first."""
_PAUSE_SECONDS = 0.01


def adopt_orphans() -> None:
    """Makes this process the parent of the orphans of its descendants."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1)


def end_with_parent(parent: int, number: int) -> None:
    """Makes the kernel send this process a signal when the thread that started it ends.

    Args:
        parent: The process id of its parent, which may have ended already.
        number: The number of the signal.
    """
    _libc.prctl(_PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:
        signal.raise_signal(number)


def reap() -> Iterator[tuple[int, int]]:
    """Yields each child that has ended, with its exit code: negative for a signal."""
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            yield ended[0], os.waitstatus_to_exitcode(ended[1])


def end_children() -> bool:
    """Ends every descendant of this process, which adopts orphans; returns whether none is left.

    They first get time to end on their own. A process of another user, as with `sudo`, may remain.
    """
    began = time.monotonic()
    while _has_children():
        seconds = time.monotonic() - began
        if seconds > END_SECONDS:
            return False
        for pid in _children() if seconds > GRACE_SECONDS else ():
            with contextlib.suppress(PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_PAUSE_SECONDS)
    return True


def _has_children() -> bool:
    """Returns whether this process has a child, after it has waited for those that have ended."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def _children() -> list[int]:
    """Returns the ids of this process's children; /proc/self/task/TID/children is fast, but some kernels lack it."""
    try:
        return [
            int(pid) for path in Path("/proc/self/task").glob("*/children") for pid in path.read_text().split()
        ] or (_scan_children())
    except OSError:
        return _scan_children()


def _scan_children() -> list[int]:
    seen = (look(int(path.name)) for path in Path("/proc").glob("[0-9]*"))
    return [process.pid for process in seen if process is not None and process.parent == os.getpid()]
