"""Keeps track of what this process has started and not ended yet, and defers signals while it starts or ends something.

Code that is about to report that nothing is left running has to look here first.
"""

import contextlib
import signal
import threading
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import Protocol

from samestep.common.runtime.processes import Process

_HELD = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGALRM)


class Started(Protocol):
    """Something that has started processes."""

    def close(self) -> Sequence[Process]:
        """Ends its processes, unless it has done so before; returns those that could not be ended."""
        ...


STARTED: list[Started] = []
"""Everything that was started and has not been ended. Code that starts something adds it, and removes it once nothing is
left."""

UNENDED: list[str] = []
"""The names of jobs that an engine was asked to end, and did not end in time."""


def end_all(spared: Sequence[Started] = ()) -> list[Process]:
    """Ends everything that has not been ended; returns the processes that remain.

    Args:
        spared: What other code started and will end.
    """
    return [process for each in [*STARTED] if each not in spared for process in each.close() if process.is_alive]


@contextlib.contextmanager
def hold_signals() -> Iterator[None]:
    """Defers signals that end a command until after the block. Only the main thread handles them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        came.append(number)

    handlers = {number: handler for number in _HELD if callable(handler := signal.getsignal(number))}
    for number in handlers:
        signal.signal(number, note)
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for number in came[:1]:
            signal.raise_signal(number)
