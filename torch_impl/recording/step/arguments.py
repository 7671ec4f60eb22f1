"""The hash of each argument of a call with several, because their common hash does not show which argument differs."""

from collections.abc import Sequence

import numpy as np
import torch

from samestep.common.steps.record import ARGUMENT
from samestep.common.steps.rows import upper_half
from samestep.torch_impl.recording.step.memory import Memory, Sums


class Arguments:
    """Collects the arguments of the calls of a step."""

    def __init__(self) -> None:
        """Starts with no arguments."""
        self._sums, self._counts = dict[str, list[Sums]](), dict[str, int]()
        self._memory, self._num_taken = Memory(), 0

    def forget(self) -> None:
        """Discards everything, for a new step."""
        self._sums, self._counts, self._num_taken = {}, {}, 0

    def memory(self, rows: int) -> torch.Tensor:
        """Returns host memory for the sums of one argument.

        Args:
            rows: The number of examples.
        """
        self._num_taken += 1
        return self._memory.of(self._num_taken - 1, rows)

    def add(self, names: Sequence[str], sums: Sequence[Sums]) -> None:
        """Adds the arguments of a call.

        Args:
            names: The names of the arguments.
            sums: The sums of the examples of each argument.
        """
        rows = sums[0].shape[0]
        for name, each in zip(names, sums, strict=True):
            self._sums.setdefault(name, []).append(each)
            self._counts[name] = self._counts.get(name, 0) + rows

    def end_step(self) -> dict[str, bytes]:
        """Returns what `RecordedStep.arguments` keeps of each argument, and begins the next step."""
        if not self._sums:
            return {}
        sums, counts = self._sums, self._counts
        self.forget()
        calls = [each for own in sums.values() for each in own]
        if all(isinstance(each, torch.Tensor) and not each.is_cpu for each in calls):
            calls = [torch.cat(calls)]  # pyrefly: ignore[bad-argument-type]  # copied to the host in one piece
        words, end, found = upper_half(np.frombuffer(self._memory.bytes_of(calls), np.uint64)).tobytes(), 0, {}
        for name, count in counts.items():
            begin, end = end, end + ARGUMENT * count
            found[name] = words[begin:end]
        return found
