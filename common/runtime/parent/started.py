"""What this process has started and not ended yet. Only who has looked here can say that nothing is left running."""

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
    """No process of it is left."""
    _started.remove(each)


def end_all() -> list[Process]:
    """Ends whatever has not been ended; returns the processes that are still there."""
    return [process for each in [*_started] for process in each.close() if process.is_alive]
