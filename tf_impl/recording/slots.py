"""The variables of our own into which a graph writes what a step was. The host reads them when the call is over.

No Python function can be called out of a graph that XLA compiles, but any graph can assign to variables. A call may take many
steps (`steps_per_execution`, a loop in a tf.function), so the last CAPACITY are kept.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.ops.resource_variable_ops import ResourceVariable

from samestep.common.steps.record import Phase, stats_dtype
from samestep.common.steps.rows import mix
from samestep.tf_impl.recording.statistics import NUMBERS, Statistics, unpack

CAPACITY, DENSE = 64, 10
ROWS = 2**16
"""Examples that are kept until they are read."""
INTS, FLOATS = ("clock", "is_skipped", "is_looked_at", "rows_seen"), ("loss", "num_losses", "lr", "scale")


def own_variable(value: object, dtype: tf.DType) -> Any:
    """A variable that no strategy mirrors, no model tracks and no optimizer knows.

    Args:
        value: Its first.
        dtype: Its own.
    """
    with tf.init_scope():
        return ResourceVariable(value, dtype=dtype, trainable=False)


class Counters:
    """What one replica counts, whatever optimizer takes the step."""

    def __init__(self, every: int) -> None:
        """Makes the variables.

        Args:
            every: After the first DENSE steps, only every one of these is looked at.
        """
        self._every = every
        self.clock = own_variable(0, tf.int64)
        self.loss = own_variable([0.0, 0.0], tf.float64)
        self.rows = own_variable(np.zeros(ROWS, np.int64), tf.int64)
        self.rows_seen = own_variable(0, tf.int64)
        self.rows_read = 0

    def is_looked_at(self) -> Any:
        """Whether the step that is taken is looked at: a tensor, or True where all are."""
        clock = self.clock.read_value()
        return self._every == 1 or (clock < DENSE) | (clock % self._every == 0)

    def add_loss(self, loss: tf.Tensor) -> None:
        """Adds a scalar that a backward pass began with."""
        self.loss.assign_add(tf.stack([tf.cast(loss, tf.float64), tf.constant(1.0, tf.float64)]))

    def add_rows(self, sums: tf.Tensor) -> None:
        """Adds the examples of a call.

        Args:
            sums: int64 [examples].
        """
        size = tf.shape(sums, tf.int64)[0]
        places = (self.rows_seen.read_value() + tf.range(size)) % ROWS
        tf.raw_ops.ResourceScatterUpdate(resource=self.rows.handle, indices=places, updates=sums)
        self.rows_seen.assign_add(size)

    def read_rows(self, end: int) -> tuple[int, ...] | None:
        """The hashes of the examples seen since the last call.

        Args:
            end: How many had been seen at the end of the step.

        Returns:
            None if there were none, or too many to keep.
        """
        start, self.rows_read = self.rows_read, end
        if not 0 < end - start <= ROWS or int(self.rows_seen) - start > ROWS:
            return None
        sums = self.rows.numpy()[np.arange(start, end) % ROWS]
        return tuple(mix(sums.view(np.uint64)).tolist())


@dataclasses.dataclass(frozen=True, eq=False)
class SeenStep:
    """One step as a graph wrote it.

    Attributes:
        numbers: By the names in INTS and FLOATS.
        stats: Phase -> the rows of the tensors of its slots; None where the step was not looked at.
    """

    numbers: dict[str, float]
    stats: dict[Phase, np.ndarray] | None


class Slots:
    """Where the steps of one optimizer on one replica are written."""

    def __init__(self, counters: Counters, statistics: Statistics, weights: Sequence[Any], phases: Sequence[Phase]) -> None:
        """Makes the variables.

        Args:
            counters: Of the replica.
            statistics: Of the tensors.
            weights: The replica's variables, of TensorFlow.
            phases: Those of gradients that can be seen.
        """
        self.counters, self.statistics, self._weights = counters, statistics, weights
        self._size = len(weights) * NUMBERS
        self._gradients = {phase: own_variable(np.zeros(self._size, np.int64), tf.int64) for phase in phases}
        self.is_applied, self.is_updated = own_variable(0, tf.int64), own_variable(0, tf.int64)
        width = len(INTS) + len(FLOATS) + (len(phases) + 1) * self._size
        self._ring, self.num_read = own_variable(np.zeros((CAPACITY, width), np.int64), tf.int64), 0
        self.count = own_variable(0, tf.int64)
        self._commit = tf.function(self._commit_in_graph, autograph=False)

    def see_gradients(self, phase: Phase, gradients: Sequence[tf.Tensor | None]) -> None:
        """Writes the statistics of gradients, where this step is looked at.

        Args:
            phase: In which they are.
            gradients: In the order of the weights.
        """
        if phase in self._gradients:
            self._gradients[phase].assign(self._looked_at(gradients, self.counters.is_looked_at()))

    def commit(self, lr: tf.Tensor, scale: tf.Tensor) -> None:
        """Ends a step, unless the optimizer only accumulated.

        Args:
            lr: The learning rate that the step was taken with.
            scale: That of the loss.
        """
        (self._commit if tf.executing_eagerly() else self._commit_in_graph)(lr, scale)

    def _commit_in_graph(self, lr: tf.Tensor, scale: tf.Tensor) -> None:
        counters, is_updated = self.counters, self.is_updated.read_value()
        ended = tf.maximum(is_updated, 1 - self.is_applied.read_value())
        is_looked_at = counters.is_looked_at()
        if is_looked_at is not True:
            is_looked_at = is_looked_at & (ended > 0)
        ints = [counters.clock.read_value(), 1 - is_updated, tf.cast(is_looked_at, tf.int64), counters.rows_seen]
        floats = [*tf.unstack(counters.loss.read_value()), *(tf.cast(each, tf.float64) for each in (lr, scale))]
        weights = self._looked_at(self._weights, is_looked_at)
        gradients = [variable.read_value() for variable in self._gradients.values()]
        row = tf.concat([tf.stack(ints), tf.bitcast(tf.stack(floats), tf.int64), *gradients, weights], 0)
        place = self.count.read_value() % CAPACITY
        tf.raw_ops.ResourceScatterUpdate(resource=self._ring.handle, indices=place, updates=row)
        counters.loss.assign(tf.where(ended > 0, tf.zeros([2], tf.float64), counters.loss.read_value()))
        counters.clock.assign_add(ended)
        self.count.assign_add(ended)
        self.is_applied.assign(0)
        self.is_updated.assign(0)

    def _looked_at(self, values: Sequence[Any], is_looked_at: Any) -> tf.Tensor:
        if is_looked_at is True:
            return self.statistics(values)
        return tf.cond(is_looked_at, lambda: self.statistics(values), lambda: tf.zeros([self._size], tf.int64))

    def read(self, is_float64: bool) -> list[SeenStep]:
        """Reads the steps since the last call. Those that were overwritten are lost."""
        count = int(self.count)
        new = range(max(self.num_read, count - CAPACITY), count)
        self.num_read = count
        if not new:
            return []
        rows = tf.gather(self._ring, [number % CAPACITY for number in new]).numpy()
        return [self._unpacked(row, is_float64) for row in rows]

    def _unpacked(self, row: np.ndarray, is_float64: bool) -> SeenStep:
        ints, floats, words = np.split(row, np.cumsum([len(INTS), len(FLOATS)]))
        numbers = dict(zip(INTS, ints.tolist(), strict=True)) | dict(
            zip(FLOATS, floats.view(np.float64).tolist(), strict=True)
        )
        phases: list[Phase] = [*self._gradients, "weight"]
        parts = (unpack(part, is_float64) for part in np.split(words, len(phases)))
        return SeenStep(numbers, dict(zip(phases, parts, strict=True)) if numbers["is_looked_at"] else None)
