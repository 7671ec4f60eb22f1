"""A line on a terminal that shows the progress of a command that is otherwise silent."""

import sys
import time

_EVERY_SECONDS = 0.2
"""The shortest time between two changes of the line."""


class Waiting:
    """A line on a terminal that shows progress; files and pipes get nothing.

    Args:
        what: What is being done, as the beginning of a sentence.
    """

    def __init__(self, what: str) -> None:
        self._what, self._next, self._width = what, 0.0, 0

    def __enter__(self) -> "Waiting":
        self.tell("")
        return self

    def tell(self, how_far: str) -> None:
        """Changes the end of the line, unless it was changed a moment ago.

        Args:
            how_far: The progress in words, such as "300 of 900 meshes".
        """
        if (now := time.monotonic()) >= self._next and sys.stderr.isatty():
            self._next = now + _EVERY_SECONDS
            line = f"{self._what}{': ' if how_far else ''}{how_far} ..."
            print(f"\r{line:<{self._width}}", end="", file=sys.stderr, flush=True)
            self._width = len(line)

    def __exit__(self, *_: object) -> None:
        if self._width:
            print(file=sys.stderr, flush=True)
