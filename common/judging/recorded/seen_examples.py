"""Which examples a run was given before, in a memory that does not grow."""

import itertools
from collections.abc import Sequence

import numpy as np

_BITS = 27
"""The size of the table is two to that power, in bits: 16 MiB."""
_MOST = 2**25
"""Examples that are remembered. Then the table calls a fifth of what is new seen, which is far from most of a batch."""
_TOGETHER = 16
"""Steps whose examples enter the table at once, which takes less time than one after the other."""


class SeenExamples:
    """Remembers hashes of examples: one bit of a table for each."""

    def __init__(self) -> None:
        """Has seen none."""
        self._table, self._count = np.zeros(2 ** (_BITS - 3), np.uint8), 0
        self._waiting: list[Sequence[int]] = []

    def add(self, examples: Sequence[int]) -> None:
        """Remembers the examples of a step.

        Args:
            examples: Their hashes.
        """
        if len(self._waiting) > _TOGETHER:
            self._take()
        self._waiting.append(examples)

    def knew_last(self) -> bool:
        """Returns whether most examples of the last step were in steps before it."""
        self._take()
        if not self._waiting or not self._waiting[0]:
            return False
        bytes_, bits = _places(self._waiting[0])
        return 2 * int(np.count_nonzero(self._table[bytes_] & bits)) > len(bits)

    def _take(self) -> None:
        """Enters all steps into the table but the last."""
        *before, last = self._waiting or [[]]
        self._waiting = [last]
        if before and self._count < _MOST:
            together = [*itertools.chain.from_iterable(before)]
            bytes_, bits = _places(together)
            np.bitwise_or.at(self._table, bytes_, bits)
            self._count += len(together)


def _places(examples: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """Returns the bytes and the bits of the table that belong to examples."""
    places = np.fromiter(examples, np.uint64, len(examples)) & np.uint64(2**_BITS - 1)
    return places >> np.uint64(3), np.uint8(1) << (places & np.uint64(7)).astype(np.uint8)
