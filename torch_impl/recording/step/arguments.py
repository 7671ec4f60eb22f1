"""The hash of each argument of a call, where there are several: their common hash does not show which one differs."""

from collections.abc import Sequence

import numpy as np
import torch

from samestep.common.steps.record import ARGUMENT
from samestep.common.steps.rows import upper_half
from samestep.torch_impl.recording.step.memory import Memory, Sums


class Arguments:
    """The arguments of the calls of a step."""

    def __init__(self) -> None:
        """Has seen none."""
        self._sums, self._counts = dict[str, list[Sums]](), dict[str, int]()
        self._memory, self._num_taken = Memory(), 0

    def forget(self) -> None:
        """Begins a step."""
        self._sums, self._counts, self._num_taken = {}, {}, 0

    def memory(self, rows: int) -> torch.Tensor:
        """Returns memory of the host for the sums of one argument.

        Args:
            rows: The number of its examples.
        """
        self._num_taken += 1
        return self._memory.of(self._num_taken - 1, rows)

    def add(self, names: Sequence[str], sums: Sequence[Sums]) -> None:
        """Adds the arguments of a call.

        Args:
            names: The name of each.
            sums: The sums of each.
        """
        rows = sums[0].shape[0]
        for name, each in zip(names, sums, strict=True):
            self._sums.setdefault(name, []).append(each)
            self._counts[name] = self._counts.get(name, 0) + rows

    def end_step(self) -> dict[str, bytes]:
        """Returns what is kept of each, as `RecordedStep.arguments` has it, and begins the next step."""
        if not self._sums:
            return {}
        sums, counts = self._sums, self._counts
        self.forget()
        calls = [each for own in sums.values() for each in own]
        if all(isinstance(each, torch.Tensor) and not each.is_cpu for each in calls):
            calls = [torch.cat(calls)]  # pyrefly: ignore[bad-argument-type]  # which is read at once
        words, end, found = upper_half(np.frombuffer(self._memory.bytes_of(calls), np.uint64)).tobytes(), 0, {}
        for name, count in counts.items():
            begin, end = end, end + ARGUMENT * count
            found[name] = words[begin:end]
        return found
