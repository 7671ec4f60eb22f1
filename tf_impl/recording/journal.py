"""What a graph writes down of each step but its tensors. The last step lies in a variable that the host reads with one call.

No Python function can be called out of a graph that XLA compiles, but any graph can assign to variables. A call may take many
steps (`steps_per_execution`, a loop in a tf.function), so the last ones are kept in another, of which places are read. That costs
more: after a step nothing of what TensorFlow does for a call is in the caches.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.ops import gen_resource_variable_ops as ops
from tensorflow.python.ops.resource_variable_ops import ResourceVariable

from samestep.common.steps.gradient_transforms import TRANSFORMS
from samestep.common.steps.recording import DENSE_STEPS
from samestep.common.steps.rows import FEW, mix, mixed
from samestep.tf_impl.recording.open_step import OpenStep

CAPACITY = 64
"""Steps of a call that are kept, unless a model says that its calls take more."""
ROWS = 2**10
"""Examples that are kept until they are read, of each step of a call."""
INTS, FLOATS = 5, 3 + len(TRANSFORMS)
WIDTH = INTS + FLOATS
"""The numbers of a step, as `Note` has them."""
_NONE = -1
"""In the place of a step's number: this is not a whole step."""


def own_variable(value: object, dtype: tf.DType) -> Any:
    """Returns a variable that no strategy mirrors, no model tracks and no optimizer knows.

    Args:
        value: Its first.
        dtype: Its own.
    """
    with tf.init_scope():
        return ResourceVariable(value, dtype=dtype, trainable=False)


def gather_now(variable: Any, places: np.ndarray) -> np.ndarray:
    """Returns some rows of an int64 variable. The op itself is called: what TensorFlow has around it costs more.

    Args:
        variable: The variable.
        places: The rows.
    """
    return ops.resource_gather(variable.handle, places, tf.int64).numpy()


def read_now(variable: Any) -> np.ndarray:
    """Returns all of an int64 variable that is only ever assigned as a whole: others are copied first."""
    return ops.read_variable_op(variable.handle, tf.int64).numpy()


@dataclasses.dataclass(frozen=True, eq=False)
class Note:
    """One step as a graph wrote it down.

    Attributes:
        number: Counted over all optimizers.
        optimizer: The number of the optimizer that took it.
        is_skipped: Whether the gradients were not finite, and the update was left out.
        is_looked_at: Whether the tensors were looked at.
        loss: The sum of the scalars that its backward passes began with.
        has_loss: Whether there were any.
        lr: The learning rate; NaN where there is no optimizer.
        transforms: How gradients were scaled and clipped; NaN where they were not.
        rows: The hashes of the examples; None if there were none, or too many to keep.
    """

    number: int
    optimizer: int
    is_skipped: bool
    is_looked_at: bool
    loss: float
    has_loss: bool
    lr: float
    transforms: Mapping[str, float]
    rows: tuple[int, ...] | None


class Journal:
    """The notes of one replica, whatever optimizer takes a step."""

    def __init__(self, every: int, capacity: int) -> None:
        """Makes the variables.

        Args:
            every: After the first steps, only every one of these is looked at.
            capacity: The steps of a call that are kept.
        """
        self._every, self.capacity, self._num_rows = every, capacity, ROWS * capacity
        self.clock = own_variable(0, tf.int64)
        self._loss = own_variable([0.0, 0.0], tf.float64)
        self._transforms: dict[str, ResourceVariable] = {}
        self._words = own_variable(np.full(self._num_rows + capacity * WIDTH, _NONE, np.int64), tf.int64)
        self._places = self._num_rows + np.arange(capacity * WIDTH).reshape(capacity, WIDTH)
        self._rows_seen, self._rows_noted = (own_variable(0, tf.int64) for _ in range(2))
        self._latest = own_variable(np.zeros(1 + WIDTH + FEW, np.int64), tf.int64)
        self.num_lost = self.num_read = self._rows_read = 0
        self.open_step = OpenStep()

    # --- in a graph ----------------------------------------------------------------------------------------------------

    def number(self, is_joined: bool = False) -> tf.Tensor:
        """Returns the number of the step that is taken.

        Args:
            is_joined: Whether an optimizer has ended it already, and another one joins it.
        """
        return self.clock.read_value() - int(is_joined)

    def is_looked_at(self, is_joined: bool = False) -> Any:
        """Returns whether the step that is taken is looked at: a tensor, or True where all are.

        Args:
            is_joined: Whether an optimizer has ended it already.
        """
        if self._every == 1:
            return True
        clock = self.number(is_joined)
        return (clock < DENSE_STEPS) | (clock % self._every == 0)

    def add_loss(self, loss: tf.Tensor) -> None:
        """Adds a scalar that a backward pass began with."""
        self._loss.assign_add(tf.stack([tf.cast(loss, tf.float64), tf.constant(1.0, tf.float64)]))

    def add_rows(self, sums: tf.Tensor) -> None:
        """Adds the examples of a call.

        Args:
            sums: int64 [examples].
        """
        self.open_step.close()
        size = tf.shape(sums, tf.int64)[0]
        places = (self._rows_seen.read_value() + tf.range(size)) % self._num_rows
        tf.raw_ops.ResourceScatterUpdate(resource=self._words.handle, indices=places, updates=sums)
        self._rows_seen.assign_add(size)

    def add_transform(self, name: str, number: tf.Tensor) -> None:
        """Notes how the gradients of this step are scaled or clipped.

        Args:
            name: One of TRANSFORMS.
            number: float64; NaN where they are not.
        """
        if name not in self._transforms:  # a step of another optimizer neither reads it nor sets it back
            self._transforms[name] = own_variable(float("nan"), tf.float64)
        self._transforms[name].assign(number)

    def take_loss(self) -> tf.Tensor:
        """Returns the loss of the step and the number of its scalars, and sets back what the note of a step is made of."""
        for variable in self._transforms.values():
            variable.assign(np.nan)
        loss = self._loss.read_value()
        self._loss.assign([0.0, 0.0])
        return loss

    def end_step(self, has_ended: Any, optimizer: int, is_skipped: Any, is_looked_at: Any, lr: tf.Tensor) -> None:
        """Writes the note of a step.

        Args:
            has_ended: A tensor, or True where nobody only accumulates; else the notes of the step are kept.
            optimizer: The number of the optimizer.
            is_skipped: A tensor, or False where no update is ever left out.
            is_looked_at: As `is_looked_at` returned it.
            lr: The learning rate that the step was taken with.
        """
        clock, loss, nan = self.clock.read_value(), self._loss.read_value(), tf.constant(np.nan, tf.float64)
        transforms = {name: variable.read_value() for name, variable in self._transforms.items()}
        number = _if(has_ended, clock, tf.constant(_NONE, tf.int64))
        flags = [tf.cast(each, tf.int64) for each in (optimizer, is_skipped, is_looked_at)]
        floats = [*tf.unstack(loss), tf.cast(lr, tf.float64), *(transforms.get(name, nan) for name in TRANSFORMS)]
        seen, noted = self._rows_seen.read_value(), self._rows_noted.read_value()
        note = tf.concat([tf.stack([number, *flags, seen]), tf.bitcast(tf.stack(floats), tf.int64)], 0)
        places = tf.range(self._num_rows, self._num_rows + WIDTH, dtype=tf.int64) + clock % self.capacity * WIDTH
        tf.raw_ops.ResourceScatterUpdate(resource=self._words.handle, indices=places, updates=note)
        places = (noted + tf.range(FEW, dtype=tf.int64)) % self._num_rows
        rows = tf.raw_ops.ResourceGather(resource=self._words.handle, indices=places, dtype=tf.int64)
        count = clock + tf.cast(has_ended, tf.int64)
        self._latest.assign(tf.concat([count[None], note, rows], 0))
        self._rows_noted.assign(_if(has_ended, seen, noted))
        self._loss.assign(_if(has_ended, tf.zeros([2], tf.float64), loss))
        for name, value in transforms.items():
            self._transforms[name].assign(_if(has_ended, nan, value))
        self.clock.assign(count)

    # --- on the host ---------------------------------------------------------------------------------------------------

    def read(self) -> list[Note]:
        """Reads the steps since the last call. Those that were overwritten are lost, and counted."""
        found = read_now(self._latest)
        count, last, rows = int(found[0]), found[1 : 1 + WIDTH], found[1 + WIDTH :]
        start, self.num_read = self.num_read, count
        if count == start:
            return []
        if count == start + 1 and last[0] == start:
            return [self._note(last, int(last[INTS - 1]), rows)]
        first = max(start, count - self.capacity)
        self.num_lost += first - start
        notes = gather_now(self._words, self._places.take(range(first, count), 0, mode="wrap"))
        return [self._note(note, int(notes[-1, INTS - 1]), rows[:0]) for note in notes]

    def _note(self, words: np.ndarray, seen: int, known: np.ndarray) -> Note:
        number, optimizer, is_skipped, is_looked_at, end = words[:INTS].tolist()
        loss, num_losses, lr, *transforms = words[INTS:].view(np.float64).tolist()
        rows = self._rows(end, seen, known)
        named = dict(zip(TRANSFORMS, transforms, strict=True))
        return Note(number, optimizer, bool(is_skipped), bool(is_looked_at), loss, num_losses > 0, lr, named, rows)

    def _rows(self, end: int, seen: int, known: np.ndarray) -> tuple[int, ...] | None:
        """Returns the hashes of the examples of a step.

        Args:
            end: How many had been seen at its end.
            seen: How many have been seen until now.
            known: The sums of the first of them, as far as they are read already.
        """
        start, self._rows_read = self._rows_read, end
        if not start < end or seen - start > self._num_rows:
            return None
        if end - start <= len(known):
            return mixed(known[: end - start].tolist())
        sums = gather_now(self._words, np.arange(start, end) % self._num_rows)
        return mixed(sums.tolist()) if len(sums) <= FEW else tuple(mix(sums.view(np.uint64)).tolist())


def _if(condition: Any, one: tf.Tensor, other: tf.Tensor) -> tf.Tensor:
    """Chooses in a graph, without an op where nothing is to be chosen."""
    return one if condition is True else tf.where(condition, one, other)
