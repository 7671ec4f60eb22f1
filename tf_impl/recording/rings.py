"""Rows that a graph writes and the host reads; the last ones are kept.

A graph that XLA compiles cannot call a Python function. A call of TensorFlow that reads a variable takes longer than
everything else that is recorded of a step, since none of its code is in the caches by then. So a graph writes into the
memory of a tensor, and the host reads that memory directly. A graph that XLA compiles cannot write there, and assigns
to variables.
"""

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.ops import gen_resource_variable_ops as ops
from tensorflow.python.ops.control_flow_util import GraphOrParentsInXlaContext
from tensorflow.python.ops.resource_variable_ops import ResourceVariable

from samestep.common.steps.rows import upper_half

_NONE = -1
"""In place of a row's number: there is no row."""
_MARK = "_is_of_recorder"
"""The attribute of tensors that the recorder passes to graphs."""


def is_own(tensor: object) -> bool:
    """Returns whether a tensor is the memory or the handle of a variable of the recorder."""
    return hasattr(tensor, _MARK)


def _owned(tensor: Any) -> Any:
    setattr(tensor, _MARK, True)
    return tensor


def own_variable(value: object, dtype: tf.DType) -> Any:
    """Returns a variable that no strategy mirrors, no model tracks and no optimizer updates.

    Args:
        value: Its initial value.
        dtype: Its dtype.
    """
    with tf.init_scope():
        variable = ResourceVariable(value, dtype=dtype, trainable=False)
    _owned(variable.handle)
    return variable


def gather_now(variable: Any, places: np.ndarray) -> np.ndarray:
    """Returns some rows of an int64 variable. The op is called directly, since TensorFlow's wrapper around it costs more.

    Args:
        variable: The variable.
        places: The rows.
    """
    return ops.resource_gather(variable.handle, places, tf.int64).numpy()


def _read_now(variable: Any) -> np.ndarray:
    """Returns all of an int64 variable that is only ever assigned as a whole: others are copied first."""
    return ops.read_variable_op(variable.handle, tf.int64).numpy()


class Ring:
    """The last rows, by their numbers."""

    def __init__(self, capacity: int, width: int) -> None:
        """Starts without rows.

        Args:
            capacity: The number of rows that are kept.
            width: The words of a row.
        """
        self.capacity, self._width = capacity, 1 + width
        with tf.init_scope(), tf.device("CPU:0"):
            self._memory = _owned(tf.constant(_NONE, tf.int64, [capacity, self._width]))
        memory = memoryview(self._memory)
        self._rows, self.words = np.asarray(memory), memory.cast("B").cast("q")
        self._latest = self._variable = None

    # --- in a graph ----------------------------------------------------------------------------------------------------

    def write(self, number: tf.Tensor, row: tf.Tensor, place: tf.Tensor) -> tf.Operation:
        """Writes a row. The returned op has to be run explicitly, since TensorFlow takes it for one that changes nothing.

        Args:
            number: The number of the row; -1 if it is to be written again.
            row: int64 [width].
            place: A number whose remainder, divided by the capacity, is the place.
        """
        row = tf.concat([number[None], row], 0)
        if not is_compiled():
            with tf.device("CPU:0"):
                places = tf.cast(place % self.capacity, tf.int32)[None]
                return tf.raw_ops.InplaceUpdate(x=self._memory, i=places, v=row[None]).op
        if self._variable is None:
            self._latest = own_variable(np.full(self._width, _NONE), tf.int64)
            self._variable = own_variable(np.full((self.capacity, self._width), _NONE), tf.int64)
        self._latest.assign(row)
        resource = self._variable.handle
        return tf.raw_ops.ResourceScatterUpdate(resource=resource, indices=place % self.capacity, updates=row)

    def write_rows(self, numbers: tf.Tensor, rows: tf.Tensor) -> tf.Operation:
        """Writes several rows in a graph that XLA does not compile. The returned op has to be run explicitly.

        Args:
            numbers: Their numbers, int64 [rows], by which they are placed.
            rows: int64 [rows, width], each after its number.
        """
        with tf.device("CPU:0"):
            places = tf.cast(numbers % self.capacity, tf.int32)
            written = tf.raw_ops.InplaceUpdate(x=self._memory, i=places, v=rows)
            return written if tf.executing_eagerly() else written.op

    # --- on the host ---------------------------------------------------------------------------------------------------

    def rows_at(self, numbers: np.ndarray) -> np.ndarray:
        """Returns those rows with these numbers that are there, in that order, without their numbers.

        Args:
            numbers: int64 [rows].
        """
        rows = self._rows[numbers % self.capacity]
        return rows[rows[:, 0] == numbers, 1:]

    def place_of(self, number: int) -> int | None:
        """Returns where a row begins in `words`; None if it is not there. This is the fastest way to read.

        Args:
            number: Its number.
        """
        place = number % self.capacity * self._width
        return place if self.words[place] == number else None

    def since(self, start: int) -> list[np.ndarray]:
        """Returns the rows from a number on, with their numbers. Rows that were overwritten are not among them.

        Args:
            start: The first number.
        """
        if self._variable is None:
            is_new = self.words[start % self.capacity * self._width] >= start
            return _from(start, self._rows) if is_new else []
        found = _from(start, self._rows, _read_now(self._latest)[None])
        if found and found[-1][0] - start >= len(found):  # one call may take steps of both kinds
            found = _from(start, self._rows, gather_now(self._variable, np.arange(self.capacity)))
        return found

    def at(self, number: int) -> np.ndarray | None:
        """Returns a row without its number; None if it is not there.

        Args:
            number: Its number.
        """
        if self.place_of(number) is not None:
            return self._rows[number % self.capacity, 1:]
        if self._variable is None:
            return None
        row = _read_now(self._latest)
        if row[0] != number:
            (row,) = gather_now(self._variable, np.array([number % self.capacity]))
        return row[1:] if row[0] == number else None


class ArgumentRings:
    """The sums of the examples of each argument of the last calls: a ring for each list of arguments of one call.

    A graph that XLA compiles cannot write it.
    """

    def __init__(self, capacity: int) -> None:
        """Starts without rings.

        Args:
            capacity: The number of examples that are kept.
        """
        self._capacity = capacity
        self._rings: dict[tuple[str, ...], Ring] = {}

    def write(self, numbers: tf.Tensor, sums: Sequence[tf.Tensor], names: tuple[str, ...]) -> list[tf.Operation]:
        """Writes the sums of a call in a graph. The returned ops have to be run explicitly.

        Args:
            numbers: The numbers of the examples, int64 [examples].
            sums: The sums of each argument, int64 [examples].
            names: The name of each argument; "" if it is not known.
        """
        if "" in names or is_compiled():
            return []
        if names not in self._rings:
            self._rings[names] = Ring(self._capacity, len(names))
        size, stamps, rows = tf.size(numbers), numbers, [*sums]
        if not all(each.shape.is_fully_defined() for each in (numbers, *sums)):  # their numbers of rows may differ
            is_alike = tf.reduce_all(tf.stack([tf.size(each) for each in sums]) == size)
            stamps = tf.where(is_alike, numbers, _NONE)
            rows = [tf.concat([each, numbers], 0)[:size] for each in sums]
        return [self._rings[names].write_rows(numbers, tf.stack([stamps, *rows], 1))]

    def read(self, start: int, end: int) -> dict[str, bytes]:
        """Returns the sums of some examples, in the form of `RecordedStep.arguments`.

        Args:
            start: The number of the first example.
            end: The number after the last example.
        """
        found: dict[str, bytes] = {}
        for names, ring in self._rings.items():
            rows = ring.rows_at(np.arange(start, end))
            for name, sums in zip(names, rows.T if len(rows) else (), strict=False):
                found[name] = found.get(name, b"") + upper_half(np.ascontiguousarray(sums)).tobytes()
        return found


def _from(start: int, *several: np.ndarray) -> list[np.ndarray]:
    found = np.concatenate([rows[rows[:, 0] >= start] for rows in several])
    return [*found[np.argsort(found[:, 0])]]


def is_compiled() -> bool:
    """Returns whether XLA compiles the graph that is built."""
    is_asked_for = "cpu_global_jit" in os.environ.get("TF_XLA_FLAGS", "")
    return is_asked_for or GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph())
