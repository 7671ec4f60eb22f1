"""Which examples a step trains on: the same sequence of global batches for every strategy and number of devices."""

import dataclasses
import hashlib
import itertools
from collections.abc import Iterator

import numpy as np

from samestep.common.dropout import example_keys

DIGESTED_BATCHES = 20
"""So that runs of any length can be compared. Another seed, start or way to draw shows in the first batch."""


@dataclasses.dataclass(frozen=True, eq=False)
class Batch:
    """One GLOBAL batch: a step number and the indices of its examples. Nothing is copied until `rows`.

    Attributes:
        step: Counted from 0 at the start of training, across restarts.
        indices: int64 [global_batch_size], into the first dimension of both arrays.
        inputs: The data set's training inputs [examples, ...].
        targets: The data set's training targets [examples, ...].
        first: The place of its first example in the GLOBAL batch, if it is a part of one.
    """

    step: int
    indices: np.ndarray
    inputs: np.ndarray
    targets: np.ndarray
    first: int = 0

    @property
    def num_targets(self) -> int:
        """The number of targets that count in the whole batch."""
        targets = self.targets[self.indices]
        return targets.size if targets.dtype.kind == "f" else int((targets >= 0).sum())

    def keys(self, seed: int, index: int, count: int) -> np.ndarray:
        """The keys of the examples of a shard, which decide what dropout keeps of each.

        Args:
            seed: Of the run.
            index: Which shard, from 0.
            count: Into how many equal shards the batch is cut.
        """
        size = len(self.indices) // count
        return example_keys(seed, self.step, self.first + index * size, size)

    def part(self, index: int, count: int) -> "Batch":
        """Makes a batch of a contiguous shard, whose examples keep their places; the arguments are those of `rows`."""
        size = len(self.indices) // count
        return dataclasses.replace(self, indices=self.indices[index * size :][:size], first=index * size)

    def rows(self, index: int, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Gathers shard `index` of `count`: contiguous, in global order. `rows(0, 1)` is the whole batch.

        Args:
            index: Which shard, from 0.
            count: Into how many equal shards the batch is cut; divides its size.

        Returns:
            Inputs and targets, each [global_batch_size / count, ...], freshly gathered.
        """
        size = len(self.indices) // count
        assert size * count == len(self.indices), "checked against the catalogue before anything starts"
        chosen = self.indices[index * size : (index + 1) * size]
        return self.inputs[chosen], self.targets[chosen]


def batches(inputs: np.ndarray, targets: np.ndarray, size: int, seed: int, start: int = 0) -> Iterator[Batch]:
    """Yields the endless sequence of global batches, from step `start` on.

    Each epoch is one permutation of the examples, drawn from (seed, epoch) alone, so that a run which continues at a
    stored step sees what an uninterrupted one would have seen. The incomplete batch at an epoch's end is dropped.

    Args:
        inputs: [examples, ...].
        targets: [examples, ...].
        size: Global batch size, at most the number of examples.
        seed: The run's seed.
        start: The first step to yield.
    """
    steps_per_epoch = len(inputs) // size
    step = start
    while True:
        epoch, first = divmod(step, steps_per_epoch)
        order = np.random.default_rng([seed, epoch]).permutation(len(inputs))
        for position in range(first, steps_per_epoch):
            yield Batch(step, order[position * size : (position + 1) * size], inputs, targets)
            step += 1


def digest_order(num_examples: int, size: int, seed: int, start: int = 0) -> str:
    """sha256 over which examples the first batches hold, and in which order.

    Args:
        num_examples: Of the data set.
        size: Global batch size.
        seed: The run's seed.
        start: The first step.
    """
    digest = hashlib.sha256()
    nothing = np.empty((num_examples, 0))
    for batch in itertools.islice(batches(nothing, nothing, size, seed, start), DIGESTED_BATCHES):
        digest.update(batch.indices.astype("<i8").tobytes())
    return digest.hexdigest()
