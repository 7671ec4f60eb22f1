"""The processes of this machine and their states, read from /proc; and the command that runs one of our modules."""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

STOPPED = ("T", "t")
"""The states of a process that SIGSTOP or a debugger holds."""
_ENDED = ("Z", "X")
_STATE, _PARENT, _STARTED, _MEMORY, _ENVIRONMENT, _ENVIRONMENT_END = 0, 1, 19, 20, 47, 48
_KILL_SECONDS, _PAUSE_SECONDS, _EXEC_SECONDS = 3.0, 0.02, 1.0


class Process(NamedTuple):
    """A process as it was when /proc was read.

    Attributes:
        pid: Its process id, which another process may have later.
        started: When it started, in clock ticks since the boot; together with the id this is unique.
        parent: The process id of its parent.
        state: One letter, as in proc(5).
        name: The name of its program.
    """

    pid: int
    started: int
    parent: int
    state: str
    name: str

    @property
    def is_alive(self) -> bool:
        """Returns whether this very process still runs; a process that has ended and waits for its parent does not."""
        now = look(self.pid)
        return now is not None and now.started == self.started and now.state not in _ENDED


def look(pid: int) -> Process | None:
    """Returns a process as it is now; None if there is none with this id."""
    try:
        before, _, after = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(") ")
    except OSError:
        return None
    fields = after.split()
    return Process(pid, int(fields[_STARTED]), int(fields[_PARENT]), fields[_STATE], before.partition(" (")[2])


def read_environment(pid: int) -> list[bytes]:
    """Reads the environment with which a process's program was started; empty for one that has ended, or is another user's.

    Linux shows no environment while a process changes from one program to the next (execve); the end of that is waited for.

    Args:
        pid: The number of the process.

    Returns:
        The variables as NAME=VALUE.
    """
    folder, deadline = Path(f"/proc/{pid}"), time.monotonic() + _EXEC_SECONDS
    with contextlib.suppress(OSError):
        while not (text := (folder / "environ").read_bytes()) and time.monotonic() < deadline:
            fields = (folder / "stat").read_text(errors="replace").rpartition(") ")[2].split()
            if fields[_MEMORY] == "0" or "0" != fields[_ENVIRONMENT] == fields[_ENVIRONMENT_END]:
                break  # it has ended, or was given no variables
            time.sleep(_PAUSE_SECONDS / 10)
        return text.split(b"\0")
    return []


def is_stopped(pid: int) -> bool:
    """Returns whether a process is stopped, for example by SIGSTOP or a debugger."""
    seen = look(pid)
    return seen is not None and seen.state in STOPPED


def descendants(roots: Iterable[int]) -> list[Process]:
    """Returns processes and everything that they started, directly or not, without those that have ended.

    Args:
        roots: The ids of the processes.
    """
    every = [seen for path in Path("/proc").glob("[0-9]*") if (seen := look(int(path.name))) is not None]
    children: dict[int, list[int]] = {}
    for process in every:
        children.setdefault(process.parent, []).append(process.pid)
    found, front = set(), [*roots]
    while front:
        pid = front.pop()
        if pid not in found:
            found.add(pid)
            front += children.get(pid, [])
    return [process for process in every if process.pid in found and process.state not in _ENDED]


def how_to_end(run: Path) -> str:
    """Says how the processes of a run come to an end, naming those of this machine; each holds the run's `config.json` open.

    Args:
        run: The run directory.
    """
    wanted, found = os.path.realpath(run / "config.json"), []
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        with contextlib.suppress(OSError):  # it has ended, or is another user's
            if any(os.path.realpath(each) == wanted for each in Path(f"/proc/{pid}/fd").iterdir()):
                found.append(pid)
    return f"wait for its end, or end it {' '.join(['with: kill -9', *found]) if found else 'where it runs'}"


def kill_all(remaining: Callable[[], list[Process]]) -> list[Process]:
    """Kills processes, and what they start meanwhile, until none is left; gives up after a while and returns the rest.

    Args:
        remaining: Returns the processes that are left.
    """
    deadline = time.monotonic() + _KILL_SECONDS
    while (left := remaining()) and time.monotonic() < deadline:
        for process in left:
            with contextlib.suppress(OSError):
                os.kill(process.pid, signal.SIGKILL)
        time.sleep(_PAUSE_SECONDS)
    return left


def module_line(module: str, *arguments: str) -> list[str]:
    """Returns the command that runs one of our modules; a `queue.py` in the current folder does not shadow Python's.

    Args:
        module: The name of the module, which begins with `samestep`.
        arguments: Its command-line arguments.
    """
    is_ours = Path.cwd() == Path(__file__).parents[3]  # it may not be installed, but is found here
    return [sys.executable, *([] if is_ours else ["-P"]), "-m", module, *arguments]
