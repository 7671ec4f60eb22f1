"""Signals wait while something is started or ended that must not be left halfway."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

_HELD = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGALRM)


@contextlib.contextmanager
def hold_signals() -> Iterator[None]:
    """Lets the handlers of signals that end a command run only after the block; Python calls them in the main thread alone."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []

    def remember(number: int, frame: FrameType | None) -> None:
        came.append(number)

    handlers = {number: handler for number in _HELD if callable(handler := signal.getsignal(number))}
    for number in handlers:
        signal.signal(number, remember)
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for number in came[:1]:
            signal.raise_signal(number)
