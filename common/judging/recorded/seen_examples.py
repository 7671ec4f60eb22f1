"""Which examples a run was given before, in a memory that does not grow."""

from collections.abc import Collection

import numpy as np

_BITS = 27
"""The size of the table is two to that power, in bits: 16 MiB."""
_MOST = 2**25
"""Examples that are remembered. Then the table calls a fifth of what is new seen, which is far from most of a batch."""


class SeenExamples:
    """Remembers hashes of examples: one bit of a table for each."""

    def __init__(self) -> None:
        """Has seen none."""
        self._table, self._count = np.zeros(2 ** (_BITS - 3), np.uint8), 0

    def add(self, examples: Collection[int]) -> bool:
        """Remembers examples; returns whether most of them were seen before.

        Args:
            examples: Their hashes, each once.
        """
        if not examples:
            return False
        places = np.fromiter(examples, np.uint64, len(examples)) & np.uint64(2**_BITS - 1)
        bytes_, bits = places >> np.uint64(3), np.uint8(1) << (places & np.uint64(7)).astype(np.uint8)
        is_known = 2 * int(np.count_nonzero(self._table[bytes_] & bits)) > len(examples)
        if self._count < _MOST:
            np.bitwise_or.at(self._table, bytes_, bits)
            self._count += len(examples)
        return is_known
