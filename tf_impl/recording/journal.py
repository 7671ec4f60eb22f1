"""What a graph writes down of each step, except its tensors.

A call may take many steps (`steps_per_execution`, a loop in a tf.function), so the last ones are kept.
"""

import dataclasses
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from samestep.common.steps.gradient_transforms import TRANSFORMS
from samestep.common.steps.record import RecordedStep
from samestep.common.steps.recording import DENSE_STEPS
from samestep.tf_impl.recording.open_step import OpenStep
from samestep.tf_impl.recording.rings import ArgumentRings, Ring, gather_now, own_variable

CAPACITY = 64
"""The number of steps of a call that are kept, unless a model says that its calls take more."""
ROWS = 2**10
"""The number of examples of each step of a call that are kept until they are read."""
FEW = 64
"""The number of these examples whose sums are in the note of a step as well."""
WIDTH = 8 + len(TRANSFORMS)
"""How many numbers a note has besides its own and its rows: those that change, those that are often alike, and the loss."""
_ALIKE, _LOSS = 4, WIDTH
"""The places of the second kind and of the loss in a row of the ring."""
_FLOAT = struct.Struct("d")
_NONE = -1
"""In place of a step's number: the step is not complete."""


@dataclasses.dataclass(frozen=True, eq=False)
class Note:
    """One step as a graph wrote it down.

    Attributes:
        number: The number of the step, counted over all optimizers.
        optimizer: The number of the optimizer that took it.
        is_skipped: Whether the gradients were not finite, and the update was left out.
        is_looked_at: Whether the tensors were looked at.
        loss: The sum of the scalars that its backward passes began with.
        num_losses: Their number, which is that of the passes.
        lr: The learning rate; NaN where there is no optimizer.
        transforms: How gradients were scaled and clipped; NaN where they were not.
        sums: The sums that are mixed into the hashes of the examples; None if there were none, or too many to keep.
        arguments: As `RecordedStep.arguments`.
    """

    number: int
    optimizer: int
    is_skipped: bool
    is_looked_at: bool
    loss: float
    num_losses: int
    lr: float
    transforms: Mapping[str, float]
    sums: bytes | None
    arguments: Mapping[str, bytes]


class Journal:
    """The notes of one replica, for the steps of all optimizers."""

    def __init__(self, every: int, capacity: int) -> None:
        """Makes the variables.

        Args:
            every: After the first steps, only one in this many is looked at.
            capacity: The steps of a call that are kept.
        """
        self._every, self.capacity, self._num_rows = every, capacity, ROWS * capacity
        self.clock = own_variable(0, tf.int64)
        self._loss = own_variable([0.0, 0.0], tf.float64)
        self.transforms: dict[str, tf.Variable] = {}
        self._words = own_variable(np.zeros(self._num_rows, np.int64), tf.int64)
        self._rows_seen, self._rows_noted = (own_variable(0, tf.int64) for _ in range(2))
        self._arguments = ArgumentRings(self._num_rows)
        self._notes, self._alike = Ring(capacity, WIDTH + FEW), b""
        self.num_lost = self.num_read = 0
        # The scalars of the last step that was written, if they hold for any step like it.
        self.scalars: Mapping[str, float] | None = None
        self.open_step, self.is_joined = OpenStep(), False

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
        """Adds the scalar with which a backward pass began."""
        self._loss.assign_add(tf.stack([tf.cast(loss, tf.float64), tf.constant(1.0, tf.float64)]))

    def add_rows(self, sums: tf.Tensor, alone: Sequence[tf.Tensor] = (), names: tuple[str, ...] = ()) -> None:
        """Adds the examples of a call.

        Args:
            sums: int64 [examples].
            alone: The sums of each argument.
            names: The name of each.
        """
        self.open_step.close()
        size = tf.shape(sums, tf.int64)[0]
        numbers = self._rows_seen.read_value() + tf.range(size)
        tf.raw_ops.ResourceScatterUpdate(resource=self._words.handle, indices=numbers % self._num_rows, updates=sums)
        with tf.control_dependencies(self._arguments.write(numbers, alone, names) if len(names) > 1 else []):
            self._rows_seen.assign_add(size)

    def add_whole(self, sums: Mapping[str, tf.Tensor]) -> None:
        """Adds arguments of a call without a row for each example, int64 [1], after its rows or those of a call before it."""
        number = self._rows_seen.read_value()[None] - 1
        with tf.control_dependencies(
            [op for name in sums for op in self._arguments.write(number, [sums[name]], (name,))]
        ):
            self._rows_seen.assign_add(0)

    def add_transform(self, name: str, number: tf.Tensor) -> None:
        """Notes how the gradients of this step are scaled or clipped.

        Args:
            name: One of TRANSFORMS.
            number: float64; NaN where they are not.
        """
        if name not in self.transforms:  # another optimizer's step neither reads nor resets it
            self.transforms[name] = own_variable(float("nan"), tf.float64)
        self.transforms[name].assign(number)

    def take_loss(self) -> tf.Tensor:
        """Returns the loss of the step and the number of its scalars, and resets what the note of a step is made of."""
        for variable in self.transforms.values():
            variable.assign(np.nan)
        loss = self._loss.read_value()
        self._loss.assign([0.0, 0.0])
        return loss

    def end_step(self, has_ended: Any, optimizer: int, is_skipped: Any, is_looked_at: Any, lr: tf.Tensor) -> None:
        """Writes the note of a step.

        Args:
            has_ended: Whether the step ends: a tensor, or True if no optimizer only accumulates. If not, the notes of
                the step are kept.
            optimizer: The number of the optimizer.
            is_skipped: Whether the update was left out: a tensor, or False if none ever is.
            is_looked_at: As `is_looked_at` returned it.
            lr: The learning rate that the step was taken with.
        """
        clock, loss, nan = self.clock.read_value(), self._loss.read_value(), tf.constant(np.nan, tf.float64)
        transforms = {name: variable.read_value() for name, variable in self.transforms.items()}
        number = _if(has_ended, clock, tf.constant(_NONE, tf.int64))
        flags = [tf.cast(each, tf.int64) for each in (is_looked_at, optimizer, is_skipped)]
        floats = [tf.cast(lr, tf.float64), *(transforms.get(name, nan) for name in TRANSFORMS), *tf.unstack(loss[::-1])]
        seen, noted = self._rows_seen.read_value(), self._rows_noted.read_value()
        places = (noted + tf.range(FEW, dtype=tf.int64)) % self._num_rows
        rows = tf.raw_ops.ResourceGather(resource=self._words.handle, indices=places, dtype=tf.int64)
        note = tf.concat([tf.stack([seen, noted, *flags]), tf.bitcast(tf.stack(floats), tf.int64), rows], 0)
        with tf.control_dependencies([self._notes.write(number, note, clock)]):
            self.clock.assign(clock + tf.cast(has_ended, tf.int64))
        self._rows_noted.assign(_if(has_ended, seen, noted))
        self._loss.assign(_if(has_ended, tf.zeros([2], tf.float64), loss))
        for name, value in transforms.items():
            self.transforms[name].assign(_if(has_ended, nan, value))

    # --- on the host ---------------------------------------------------------------------------------------------------

    def read(self) -> list[Note]:
        """Reads the steps since the last call. Steps that were overwritten are lost, and counted."""
        found = self._notes.since(self.num_read)
        if not found:
            return []
        start, self.num_read = self.num_read, int(found[-1][0]) + 1
        self.num_lost += self.num_read - start - len(found)
        notes = [self._note(note, int(found[-1][1])) for note in found]
        is_plain = notes[-1].num_losses == 1 and not notes[-1].is_skipped
        self._alike = found[-1][_ALIKE:_LOSS].tobytes() if is_plain else b""
        return notes

    def read_alike(self) -> tuple[RecordedStep, tuple[bytes, None]] | None:
        """Reads the next step if it is like the last one except for its loss and examples, and is not looked at.

        Returns:
            What `Recorder.write` takes; None if the next step is another one, or there is none.
        """
        words, place = self._notes.words, self._notes.place_of(self.num_read)
        if self.scalars is None or self.is_joined or place is None or words[place + 3]:
            return None
        count, loss = words[place + 1] - words[place + 2], place + _LOSS
        if not 0 < count <= FEW or words[place + _ALIKE : loss].tobytes() != self._alike:
            return None
        arguments = self._arguments.read(words[place + 2], words[place + 1])
        given = _FLOAT.unpack(words[loss : loss + 1]), None, self.scalars
        step = RecordedStep(self.num_read, *given, arguments=arguments)
        self.num_read += 1
        return step, (words[loss + 1 : loss + 1 + count].tobytes(), None)

    def lost(self) -> str:
        """Says that a call of a tf.function took more steps than are kept."""
        return (
            f"a call of a tf.function took {self.num_lost} steps more than the {self.capacity} that are kept: its "
            "first ones are not recorded; take fewer steps in a call."
        )

    def unread(self) -> str:
        """Says at the end that graphs have counted steps that could not be read, as on another machine; "" if not."""
        num_steps = int(self.clock.numpy())
        if num_steps == self.num_read:
            return ""
        return (
            f"{num_steps} steps were taken, and of the last {num_steps - self.num_read} nothing could be read: the record lacks "
            "them; train on a device of this process."
        )

    def _note(self, words: np.ndarray, seen: int) -> Note:
        number, end, start, is_looked_at, optimizer, is_skipped = words[:6].tolist()
        lr, *transforms, num_losses, loss = words[6 : _LOSS + 1].view(np.float64).tolist()
        sums = self._sums(start, end, seen, words[_LOSS + 1 :])
        named = dict(zip(TRANSFORMS, transforms, strict=True))
        given = number, optimizer, bool(is_skipped), bool(is_looked_at), loss, int(num_losses), lr, named, sums
        return Note(*given, self._arguments.read(start, end))

    def _sums(self, start: int, end: int, seen: int, known: np.ndarray) -> bytes | None:
        """Returns the sums of the examples from one number to another, the first of which are `known`; None if they are gone."""
        if not start < end or seen - start > self._num_rows:
            return None
        if end - start <= len(known):
            return known[: end - start].tobytes()
        return gather_now(self._words, np.arange(start, end) % self._num_rows).tobytes()


def _if(condition: Any, one: tf.Tensor, other: tf.Tensor) -> tf.Tensor:
    """Chooses in a graph, without an op where nothing is to be chosen."""
    return one if condition is True else tf.where(condition, one, other)
