"""Decides which thread of a process is followed; a record covers one thread, because its steps are sequential."""

import threading
from collections.abc import Callable


class FollowedThread:
    """The thread that trains. Until a thread has begun a backward pass or an update, it is the one that last called a model.

    When it has ended, another thread may take its place, unless that thread trained at the same time, because then the
    beginning of its steps was missed.
    """

    def __init__(self, begin: Callable[[], None], note: Callable[[str], None]) -> None:
        """Starts without a thread.

        Args:
            begin: Ends the steps of the previous thread.
            note: Shows a sentence to the user.
        """
        self._begin, self._note = begin, note
        self.ident, self._thread = 0, threading.main_thread()  # public, because a call costs more than a comparison
        self._trains, self._is_noted = False, False

    def is_here(self) -> bool:
        """Returns whether the calling thread is the followed one, may become it, or is a thread of autograd working for it."""
        return threading.get_ident() == self.ident or self._is_free() or _is_of_autograd()

    def take(self) -> bool:
        """Returns whether the calling thread is followed; it becomes so if no other thread trains."""
        here = threading.get_ident()
        if here == self.ident:
            return True
        if self._is_free():
            if self.ident:
                self._begin()
            self.ident, self._thread, self._trains = here, threading.current_thread(), False
            return True
        return _is_of_autograd()

    def train(self) -> bool:
        """Like `take`, but from then on the thread is followed until it ends."""
        if (self._trains and threading.get_ident() == self.ident) or self.take():
            self._trains = True
            return True
        if not self._is_noted:
            self._is_noted = True
            self._note(f"several threads train at the same time; only {self._thread.name} is recorded.")
        return False

    def _is_free(self) -> bool:
        return not self._trains or not (self._is_noted or self._thread.is_alive())


def _is_of_autograd() -> bool:
    return isinstance(threading.current_thread(), threading._DummyThread)
