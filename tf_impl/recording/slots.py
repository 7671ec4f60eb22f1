"""The variables of our own into which a graph writes what a step was. The host reads them when the call is over.

No Python function can be called out of a graph that XLA compiles, but any graph can assign to variables. A call may take many
steps (`steps_per_execution`, a loop in a tf.function), so the last ones are kept.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.ops import gen_resource_variable_ops as ops
from tensorflow.python.ops.resource_variable_ops import ResourceVariable

from samestep.common.steps.gradient_transforms import TRANSFORMS
from samestep.common.steps.keras_scalars import written
from samestep.common.steps.record import Phase
from samestep.common.steps.recording import DENSE_STEPS
from samestep.common.steps.rows import mix
from samestep.tf_impl.recording.statistics import NUMBERS, Statistics, unpack

CAPACITY = 64
"""Steps of a call that are kept, unless a model says that its calls take more."""
ROWS = 2**10
"""Examples that are kept until they are read, of each step of a call."""
INTS, FLOATS = 4, 3 + len(TRANSFORMS)
"""The numbers of a step that are not of tensors, as `SeenStep` has them."""


def own_variable(value: object, dtype: tf.DType) -> Any:
    """Returns a variable that no strategy mirrors, no model tracks and no optimizer knows.

    Args:
        value: Its first.
        dtype: Its own.
    """
    with tf.init_scope():
        return ResourceVariable(value, dtype=dtype, trainable=False)


def read_now(variable: Any) -> int:
    """Returns the value of a scalar. The op itself is called: what TensorFlow has around it costs more."""
    return int(ops.read_variable_op(variable.handle, tf.int64).numpy())


def gather_now(variable: Any, places: np.ndarray) -> np.ndarray:
    """Some rows of a variable, which is a ring.

    Args:
        variable: The variable.
        places: Counted on and on.
    """
    return ops.resource_gather(variable.handle, places % variable.shape[0], tf.int64).numpy()


class WriteCounters:
    """What one replica counts, whatever optimizer takes the step."""

    def __init__(self, every: int, num_rows: int) -> None:
        """Makes the variables.

        Args:
            every: After the first steps, only every one of these is looked at.
            num_rows: The examples that are kept.
        """
        self._every, self._num_rows = every, num_rows
        self.clock = own_variable(0, tf.int64)
        self.loss = own_variable([0.0, 0.0], tf.float64)
        self.transforms = {name: own_variable(float("nan"), tf.float64) for name in TRANSFORMS}
        self.rows = own_variable(np.zeros(num_rows, np.int64), tf.int64)
        self.rows_seen = own_variable(0, tf.int64)
        self._rows_read = 0

    def is_looked_at(self) -> Any:
        """Returns whether the step that is taken is looked at: a tensor, or True where all are."""
        clock = self.clock.read_value()
        return self._every == 1 or (clock < DENSE_STEPS) | (clock % self._every == 0)

    def add_loss(self, loss: tf.Tensor) -> None:
        """Adds a scalar that a backward pass began with."""
        self.loss.assign_add(tf.stack([tf.cast(loss, tf.float64), tf.constant(1.0, tf.float64)]))

    def add_rows(self, sums: tf.Tensor) -> None:
        """Adds the examples of a call.

        Args:
            sums: int64 [examples].
        """
        size = tf.shape(sums, tf.int64)[0]
        places = (self.rows_seen.read_value() + tf.range(size)) % self._num_rows
        tf.raw_ops.ResourceScatterUpdate(resource=self.rows.handle, indices=places, updates=sums)
        self.rows_seen.assign_add(size)

    def read_rows(self, end: int, seen: int) -> tuple[int, ...] | None:
        """Returns the hashes of the examples seen since the last call.

        Args:
            end: How many had been seen at the end of the step.
            seen: How many have been seen until now.

        Returns:
            None if there were none, or too many to keep.
        """
        start, self._rows_read = self._rows_read, end
        if not start < end or seen - start > self._num_rows:
            return None
        return tuple(mix(gather_now(self.rows, np.arange(start, end)).view(np.uint64)).tolist())


@dataclasses.dataclass(frozen=True, eq=False)
class SeenStep:
    """One step as a graph wrote it.

    Attributes:
        number: Counted over all optimizers.
        is_skipped: Whether the gradients were not finite, and the update was left out.
        rows_seen: The examples until its end.
        loss: The sum of the scalars that its backward passes began with.
        has_loss: Whether there were any.
        scalars: "lr", the learning rate, and how gradients were scaled and clipped; NaN where they were not.
        stats: Phase -> the rows of the tensors of its slots; None where the step was not looked at.
    """

    number: int
    is_skipped: bool
    rows_seen: int
    loss: float
    has_loss: bool
    scalars: dict[str, float]
    stats: dict[Phase, np.ndarray] | None


class Slots:
    """Where the steps of one optimizer on one replica are written."""

    def __init__(
        self,
        counters: WriteCounters,
        statistics: Statistics,
        weights: Sequence[Any],
        phases: Sequence[Phase],
        capacity: int = CAPACITY,
    ) -> None:
        """Makes the variables.

        Args:
            counters: The counters of the replica.
            statistics: The statistics of the tensors.
            weights: The replica's variables, of TensorFlow.
            phases: Those of gradients that can be seen.
            capacity: The steps that one call may take.
        """
        self.num_lost, self._capacity = 0, capacity
        self.counters, self.statistics, self.weights = counters, statistics, weights
        self._size = len(weights) * NUMBERS
        self._gradients = {phase: own_variable(np.zeros(self._size, np.int64), tf.int64) for phase in phases}
        self.is_applied, self.is_updated = own_variable(0, tf.int64), own_variable(0, tf.int64)
        width = INTS + FLOATS + (len(phases) + 1) * self._size
        self._ring = own_variable(np.zeros((capacity, width), np.int64), tf.int64)
        self.count = own_variable(0, tf.int64)
        self._commit: Any = None
        self._num_read = 0

    def see_gradients(self, phase: Phase, gradients: Sequence[tf.Tensor | None]) -> None:
        """Writes the statistics of gradients, where this step is looked at.

        Args:
            phase: In which they are.
            gradients: In the order of the weights.
        """
        if phase in self._gradients:
            self._gradients[phase].assign(self._looked_at(gradients, self.counters.is_looked_at()))

    def commit(self, lr: tf.Tensor) -> None:
        """Ends a step, unless the optimizer only accumulated.

        Args:
            lr: The learning rate that the step was taken with.
        """
        if not tf.executing_eagerly():
            self._commit_in_graph(lr)
            return
        if self._commit is None:
            self._commit = tf.function(self._commit_in_graph, autograph=False).get_concrete_function(lr)
        self._commit(lr)

    def _commit_in_graph(self, lr: tf.Tensor) -> None:
        counters, is_updated = self.counters, self.is_updated.read_value()
        ended = tf.maximum(is_updated, 1 - self.is_applied.read_value())
        is_looked_at = counters.is_looked_at()
        if is_looked_at is not True:
            is_looked_at = is_looked_at & (ended > 0)
        ints = [counters.clock.read_value(), 1 - is_updated, tf.cast(is_looked_at, tf.int64), counters.rows_seen]
        transforms = [each.read_value() for each in counters.transforms.values()]
        floats = [*tf.unstack(counters.loss.read_value()), tf.cast(lr, tf.float64), *transforms]
        weights = self._looked_at(self.weights, is_looked_at)
        gradients = [variable.read_value() for variable in self._gradients.values()]
        row = tf.concat([tf.stack(ints), tf.bitcast(tf.stack(floats), tf.int64), *gradients, weights], 0)
        place = self.count.read_value() % self._capacity
        tf.raw_ops.ResourceScatterUpdate(resource=self._ring.handle, indices=place, updates=row)
        counters.loss.assign(tf.where(ended > 0, tf.zeros([2], tf.float64), counters.loss.read_value()))
        for variable, value in zip(counters.transforms.values(), transforms, strict=True):
            variable.assign(tf.where(ended > 0, tf.constant(np.nan, tf.float64), value))
        counters.clock.assign_add(ended)
        self.count.assign_add(ended)
        self.is_applied.assign(0)
        self.is_updated.assign(0)

    def _looked_at(self, values: Sequence[Any], is_looked_at: Any) -> tf.Tensor:
        if is_looked_at is True:
            return self.statistics(values)
        return tf.cond(is_looked_at, lambda: self.statistics(values), lambda: tf.zeros([self._size], tf.int64))

    def read(self, is_float64: bool) -> list[SeenStep]:
        """Reads the steps since the last call. Those that were overwritten are lost, and counted."""
        count = read_now(self.count)
        new = np.arange(max(self._num_read, count - self._capacity), count)
        self.num_lost += count - self._num_read - len(new)
        self._num_read = count
        return [self._unpacked(row, is_float64) for row in gather_now(self._ring, new)] if len(new) else []

    def _unpacked(self, row: np.ndarray, is_float64: bool) -> SeenStep:
        ints, floats, words = np.split(row, [INTS, INTS + FLOATS])
        number, is_skipped, is_looked_at, rows_seen = ints.tolist()
        loss, num_losses, lr, *transforms = floats.view(np.float64).tolist()
        phases: list[Phase] = [*self._gradients, "weight"]
        parts = (unpack(part, is_float64) for part in np.split(words, len(phases)))
        stats = dict(zip(phases, parts, strict=True)) if is_looked_at else None
        scalars = {"lr": lr if is_float64 else written(lr)} | dict(zip(TRANSFORMS, transforms, strict=True))
        return SeenStep(number, bool(is_skipped), rows_seen, loss, num_losses > 0, scalars, stats)
