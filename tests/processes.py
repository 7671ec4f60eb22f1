"""Which processes there are, from /proc: what a command leaves behind."""

import os
import time
from collections.abc import Iterable
from pathlib import Path


def descendants(pid: int | None = None) -> set[int]:
    """The processes started by a process (this one by default) that have not ended, directly or not."""
    children: dict[int, set[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            _, _, after = path.read_text().rpartition(")")
        except OSError:
            continue  # ended since it was listed
        state, parent, *_ = after.split()
        if state != "Z":
            children.setdefault(int(parent), set()).add(int(path.parent.name))
    found: set[int] = set()
    front = [os.getpid() if pid is None else pid]
    while front:
        new = children.get(front.pop(), set()) - found
        found |= new
        front += new
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
