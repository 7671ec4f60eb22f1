"""The examples that a step trains on: the same sequence of global batches for every strategy and number of devices."""

import dataclasses
import hashlib
import itertools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from samestep.common.gathering import Gathering
from samestep.common.keys import example_keys
from samestep.common.mesh import Mesh

DIGESTED_BATCHES = 20
"""How many batches are digested. They are few, so runs of any length can be compared. Another seed, start or way to draw shows in
the first batch."""


class Chunk(NamedTuple):
    """One of several equal parts.

    Attributes:
        index: The number of the part, from 0.
        count: The number of parts.
        is_zigzag: Whether it consists of two pieces instead of one: the first as far from the start as the second from the end.
    """

    index: int = 0
    count: int = 1
    is_zigzag: bool = False

    def pieces(self, size: int) -> tuple[range, ...]:
        """Returns the places of the chunk among `size`, a multiple of its count, or of twice the count if it is a zigzag."""
        if not self.is_zigzag:
            own = self.within(size)
            return (range(own.start, own.stop),)
        length = size // (2 * self.count)
        first = range(self.index * length, (self.index + 1) * length)
        return first, range(size - first.stop, size - first.start)

    def within(self, size: int) -> slice:
        """Returns the places of a contiguous chunk among `size`, which must be a multiple of its count."""
        assert not self.is_zigzag
        assert size % self.count == 0, "checked against the catalogue before anything starts"
        length = size // self.count
        return slice(self.index * length, (self.index + 1) * length)


class BatchPart(NamedTuple):
    """The part of a GLOBAL batch that a process takes: some of the examples, and some of the positions of each."""

    examples: Chunk = Chunk()
    positions: Chunk = Chunk()

    @classmethod
    def of(cls, mesh: Mesh, rank: int, is_zigzag: bool = False) -> "BatchPart":
        """Returns the part of one device.

        Args:
            mesh: All devices.
            rank: The place of the device among them.
            is_zigzag: Whether positions are cut so that each part has early and late ones.
        """
        examples, positions = (Chunk(mesh.part(rank, cut), mesh.parts(cut)) for cut in ("examples", "positions"))
        return cls(examples, positions._replace(is_zigzag=is_zigzag))

    @property
    def count(self) -> int:
        """The number of equal parts that the batch has."""
        return self.examples.count * self.positions.count

    @property
    def is_first(self) -> bool:
        """Returns whether it is the first of them."""
        return self.examples.index == self.positions.index == 0

    def split(self, index: int, count: int) -> "BatchPart":
        """Takes a micro-batch: a chunk of the examples of this part.

        Args:
            index: Which one, from 0.
            count: The number of micro-batches.
        """
        whole = self.examples
        return self._replace(examples=Chunk(whole.index * count + index, whole.count * count))


WHOLE = BatchPart()


@dataclasses.dataclass(frozen=True, eq=False)
class Batch:
    """One GLOBAL batch: a step number and the indices of its examples. Nothing is copied until `rows`.

    Attributes:
        step: Counted from 0 at the start of training, across restarts.
        indices: int64 [global_batch_size], into the first dimension of both arrays.
        inputs: The data set's training inputs [examples, ...].
        targets: The data set's training targets [examples, ...].
        first: The place of its first example in the GLOBAL batch, if it is a part of one.
        gathering: Records which examples are gathered; None if nothing does.
    """

    step: int
    indices: np.ndarray
    inputs: np.ndarray
    targets: np.ndarray
    first: int = 0
    gathering: Gathering | None = None

    @property
    def num_targets(self) -> int:
        """The number of targets that count in the whole batch."""
        targets = self.targets[self.indices]
        return targets.size if targets.dtype.kind == "f" else int((targets >= 0).sum())

    def keys(self, seed: int, part: BatchPart = WHOLE) -> np.ndarray:
        """Returns the keys of the examples of a part, which decide which elements dropout keeps in each.

        Args:
            seed: The seed of the run.
            part: Which part of the batch.
        """
        own = part.examples.within(len(self.indices))
        return example_keys(seed, self.step, self.first + own.start, own.stop - own.start)

    def part(self, index: int, count: int) -> "Batch":
        """Makes a batch of a contiguous shard, whose examples keep their places.

        Args:
            index: Which shard, from 0.
            count: Into how many equal shards the batch is cut.
        """
        own = Chunk(index, count).within(len(self.indices))
        return dataclasses.replace(self, indices=self.indices[own], first=own.start)

    def rows(self, part: BatchPart = WHOLE) -> tuple[np.ndarray, np.ndarray]:
        """Gathers a part of the batch, contiguous and in global order.

        Args:
            part: The part. The number of examples must be a multiple of its count; for that of positions, see
                `Chunk.pieces`.

        Returns:
            Inputs and targets, each [examples of the part, positions of the part, ...], freshly gathered.
        """
        places = part.examples.within(len(self.indices))
        chosen = self.indices[places]
        if self.gathering is not None:
            self.gathering.note(self.step, self.first + places.start, chosen, part.positions[:2])
        inputs, targets = self.inputs[chosen], self.targets[chosen]
        if part.positions.count == 1:  # then examples need not have positions
            return inputs, targets
        own = np.concatenate(part.positions.pieces(inputs.shape[1]))
        return np.ascontiguousarray(inputs[:, own]), np.ascontiguousarray(targets[:, own])  # not views of all positions


def batches(inputs: np.ndarray, targets: np.ndarray, size: int, seed: int, start: int = 0) -> Iterator[Batch]:
    """Yields the endless sequence of global batches, from step `start` on.

    Each epoch is one permutation of the examples, drawn from (seed, epoch) only, so a run that continues at a stored step sees
    the batches that an uninterrupted one would have seen. The incomplete batch at an epoch's end is dropped.

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
    """Returns the SHA-256 digest of the examples in the first batches and their order.

    Args:
        num_examples: The number of examples of the data set.
        size: Global batch size.
        seed: The run's seed.
        start: The first step.
    """
    digest = hashlib.sha256()
    nothing = np.empty((num_examples, 0))
    for batch in itertools.islice(batches(nothing, nothing, size, seed, start), DIGESTED_BATCHES):
        digest.update(batch.indices.astype("<i8").tobytes())
    return digest.hexdigest()
