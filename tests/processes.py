"""Which processes there are, from /proc: what a command leaves behind."""

import contextlib
import os
import time
from collections.abc import Iterable
from pathlib import Path


def descendants(pid: int | None = None) -> set[int]:
    """The processes started by a process (this one by default) that have not ended, directly or not."""
    found: set[int] = set()
    front = [os.getpid() if pid is None else pid]
    while front:
        new = alive(_children(front.pop())) - found
        found |= new
        front += new
    return found


def _children(pid: int) -> set[int]:
    """Those of each thread: the kernel lists them, so nobody reads what all the others of this machine are."""
    found: set[int] = set()
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):  # ended since it was listed
            found |= {int(word) for word in path.read_text().split()}
    return found


def alive(pids: Iterable[int]) -> set[int]:
    """Those of the processes that have not ended."""
    return {pid for pid in pids if _state(pid) not in ("", "Z")}


def all_end(pids: Iterable[int], seconds: float) -> set[int]:
    """Waits until none is alive; returns those that still are after so long."""
    deadline = time.monotonic() + seconds
    while (left := alive(pids)) and time.monotonic() < deadline:
        time.sleep(0.02)
    return left


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""
