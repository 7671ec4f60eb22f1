"""What this process has started and not ended yet. Code that reports that nothing is left running has to look here first."""

from collections.abc import Sequence
from typing import Protocol

from samestep.common.runtime.processes import Process


class Started(Protocol):
    """Something with processes."""

    def close(self) -> Sequence[Process]:
        """Ends its processes, unless it has done so before; returns those that could not be ended."""
        ...


_started: list[Started] = []


def remember(each: Started) -> None:
    """Keeps in mind what has been started."""
    _started.append(each)


def forget(each: Started) -> None:
    """Notes that none of its processes is left."""
    _started.remove(each)


def everything() -> list[Started]:
    """Returns everything that was started and has not been ended."""
    return [*_started]


def end_all(spared: Sequence[Started] = ()) -> list[Process]:
    """Ends whatever has not been ended; returns the processes that are still there.

    Args:
        spared: The processes that other code started and will end.
    """
    return [process for each in everything() if each not in spared for process in each.close() if process.is_alive]
