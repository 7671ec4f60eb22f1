"""Ends a process whose engine is gone: what started it has died, and nothing would end it any more."""

import os
import signal
import threading
import time

LOOK_SECONDS = 1.0


def end_with_parent() -> None:
    """Lets the present process end soon after the one that started it, which a thread looks for."""
    threading.Thread(target=_watch, args=(os.getppid(),), daemon=True, name="parent-watch").start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(LOOK_SECONDS)
    os.kill(os.getpid(), signal.SIGKILL)  # it may be inside a collective, where no handler would run
