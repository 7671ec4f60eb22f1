"""Which thread of a process is followed: a record covers one, because its steps are sequential."""

import threading
from collections.abc import Callable


class FollowedThread:
    """The thread that trains. Until one has begun a backward pass or an update, it is the one that called a model last.

    When it has ended another one may take its place, unless that one trained while it did: its steps have no beginning.
    """

    def __init__(self, begin: Callable[[], None], note: Callable[[str], None]) -> None:
        """Follows none yet.

        Args:
            begin: Ends what another thread did.
            note: Leaves a sentence for the user.
        """
        self._begin, self._note = begin, note
        self.ident, self._thread = 0, threading.main_thread()  # in public, since a call costs more than to compare
        self._trains, self._is_noted = False, False

    def is_here(self) -> bool:
        """Returns whether the calling thread is the one, or may become it, or is one of autograd's, which work for it."""
        return threading.get_ident() == self.ident or self._is_free() or _is_of_autograd()

    def take(self) -> bool:
        """Returns whether the calling thread is followed: no other one trains."""
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
        """As `take`; from now on the thread is followed until it ends."""
        if (self._trains and threading.get_ident() == self.ident) or self.take():
            self._trains = True
            return True
        if not self._is_noted:
            self._is_noted = True
            self._note(f"several threads train at a time; {self._thread.name} is recorded.")
        return False

    def _is_free(self) -> bool:
        return not self._trains or not (self._is_noted or self._thread.is_alive())


def _is_of_autograd() -> bool:
    return isinstance(threading.current_thread(), threading._DummyThread)
