"""Says how far a long record was read."""

import sys
import time

from samestep.experiments.printing.progress import spell_seconds

_FIRST_SECONDS, _SECONDS = 3.0, 10.0
"""Before the first line, and between two."""


class ReadingProgress:
    """Prints a line every few seconds while the steps of a record are read."""

    def __init__(self, name: str) -> None:
        """Prints nothing yet.

        Args:
            name: "A" or "B".
        """
        self._name = name
        self._began = time.monotonic()
        self._next = self._began + _FIRST_SECONDS

    def __call__(self, number: int, share: float) -> None:
        """Prints, if the last line is old enough.

        Args:
            number: The step that is read; the first one of a record is -1.
            share: Which part of the record was read, from 0 to 1.
        """
        now = time.monotonic()
        if number < 0:
            self._began, self._next = now, now + _FIRST_SECONDS
        elif now >= self._next:
            self._next = now + _SECONDS
            left = spell_seconds((now - self._began) * (1 - share) / share)
            line = f"samestep: {self._name} is read and compared: step {number:,}, {share:.0%}, about {left} left ..."
            print(line, file=sys.stderr, flush=True)
