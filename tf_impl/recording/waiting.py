"""When the host reads what a graph wrote down.

After a step, a call of TensorFlow costs more than all else that is done for a step whose tensors are not looked at. With
`--every N`, the steps between two looks are therefore read together, but never later than the first step that is taken a second
after the last one that was read.
"""

import time

from samestep.common.steps.recording import Recorder

LONGEST_SECONDS = 1.0
MOST_STEPS = 16
"""Far fewer than a journal keeps."""


class Waiting:
    """The steps of a process that were taken and not read."""

    def __init__(self, recorder: Recorder) -> None:
        """Has none.

        Args:
            recorder: Knows which steps are looked at.
        """
        self._recorder = recorder
        self._may_wait = recorder.options.every > 1 and recorder.options.stop_after is None
        self._count = self._next = 0
        self._read_at = 0.0

    def add(self) -> None:
        """A call has taken a step, or several."""
        self._count += 1

    @property
    def is_due(self) -> bool:
        """Whether the steps are to be read now."""
        if not self._may_wait or self._count >= MOST_STEPS or self._recorder.looks_at(self._next + self._count - 1):
            return True
        return time.monotonic() - self._read_at > LONGEST_SECONDS

    def end(self, number: int, num_read: int, has_room: bool) -> None:
        """All steps were read.

        Args:
            number: The number of the next step.
            num_read: How many there were.
            has_room: Whether the examples of more such steps can be kept.
        """
        if num_read > max(self._count, 1) or not has_room:  # a call may take as many as are kept
            self._may_wait = False
        self._count, self._next, self._read_at = 0, number, time.monotonic()
