"""Digests of batches: which examples a step trained on, in whatever order and in whatever parts."""

import hashlib
from collections.abc import Sequence

import numpy as np

from samestep.common.batch import Batch


class RowDigests:
    """Digests batches of a data set. Each example is hashed once, the first time that a batch has it.

    A batch's digest is the sum of its examples' hashes mod 2**64. So the order of the examples does not count, and the digests
    of shards and of micro-batches add up to that of their batch.
    """

    def __init__(self, inputs: np.ndarray, targets: np.ndarray) -> None:
        """Hashes nothing yet.

        Args:
            inputs: [examples, ...], before they are cast to the dtype of a run.
            targets: [examples, ...].
        """
        self._arrays = inputs, targets
        self._hashes = np.zeros(len(inputs), np.uint64)
        self._is_hashed = np.zeros(len(inputs), bool)

    def digests(self, batches: Sequence[Batch]) -> tuple[int, ...]:
        """Digests batches of one size, all at once: a call for each would cost more than the sum itself."""
        indices = np.stack([batch.indices for batch in batches])
        new = np.sort(indices[~self._is_hashed[indices]])
        new = new[np.diff(new, prepend=-1) > 0]  # np.unique imports numpy.ma, a tenth of a short run's time
        if len(new):
            self._hashes[new] = [
                _hash(parts) for parts in zip(*(_rows(array[new]) for array in self._arrays), strict=True)
            ]
            self._is_hashed[new] = True
        return tuple(self._hashes[indices].sum(axis=1, dtype=np.uint64).tolist())  # wraps around at 2**64


def _rows(array: np.ndarray) -> list[bytes]:
    data, size = array.tobytes(), array[:1].nbytes
    return [data[start * size : (start + 1) * size] for start in range(len(array))]


def _hash(parts: Sequence[bytes]) -> int:
    return int.from_bytes(hashlib.blake2b(b"".join(parts), digest_size=8).digest())
