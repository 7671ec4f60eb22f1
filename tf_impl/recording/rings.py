"""Rows that a graph writes, the last ones of which are kept, and that the host reads.

No Python function can be called out of a graph that XLA compiles. A call of TensorFlow that reads a variable takes longer than
all else that is recorded of a step, since nothing of its code is in the caches then. So a graph writes into the memory of a
tensor, and the host reads that as it lies. A graph that XLA compiles cannot write there: it assigns to variables.
"""

import os
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.ops import gen_resource_variable_ops as ops
from tensorflow.python.ops.control_flow_util import GraphOrParentsInXlaContext
from tensorflow.python.ops.resource_variable_ops import ResourceVariable

_NONE = -1
"""In the place of a row's number: nothing is there."""
_MARK = "_is_of_recorder"
"""The attribute of tensors that graphs are given for us."""


def is_own(tensor: object) -> bool:
    """Returns whether a tensor is the memory or the handle of a variable of the recorder's."""
    return hasattr(tensor, _MARK)


def _owned(tensor: Any) -> Any:
    setattr(tensor, _MARK, True)
    return tensor


def own_variable(value: object, dtype: tf.DType) -> Any:
    """Returns a variable that no strategy mirrors, no model tracks and no optimizer knows.

    Args:
        value: Its first.
        dtype: Its own.
    """
    with tf.init_scope():
        variable = ResourceVariable(value, dtype=dtype, trainable=False)
    _owned(variable.handle)
    return variable


def gather_now(variable: Any, places: np.ndarray) -> np.ndarray:
    """Returns some rows of an int64 variable. The op itself is called: what TensorFlow has around it costs more.

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
        """Has none yet.

        Args:
            capacity: How many are kept.
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
        """Writes a row. What is returned has to be run: TensorFlow takes it for an op that changes nothing.

        Args:
            number: Its number; -1 if it is to be written again.
            row: int64 [width].
            place: Any number of which the remainder is the place.
        """
        row = tf.concat([number[None], row], 0)
        if not _is_compiled():
            with tf.device("CPU:0"):
                places = tf.cast(place % self.capacity, tf.int32)[None]
                return tf.raw_ops.InplaceUpdate(x=self._memory, i=places, v=row[None]).op
        if self._variable is None:
            self._latest = own_variable(np.full(self._width, _NONE), tf.int64)
            self._variable = own_variable(np.full((self.capacity, self._width), _NONE), tf.int64)
        self._latest.assign(row)
        resource = self._variable.handle
        return tf.raw_ops.ResourceScatterUpdate(resource=resource, indices=place % self.capacity, updates=row)

    # --- on the host ---------------------------------------------------------------------------------------------------

    def place_of(self, number: int) -> int | None:
        """Returns where a row begins in `words`; None if it is not there. Of all ways to read this is the quickest.

        Args:
            number: Its number.
        """
        place = number % self.capacity * self._width
        return place if self.words[place] == number else None

    def since(self, start: int) -> list[np.ndarray]:
        """Returns the rows from a number on, with their numbers. Those that were overwritten are not among them.

        Args:
            start: The number.
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


def _from(start: int, *several: np.ndarray) -> list[np.ndarray]:
    found = np.concatenate([rows[rows[:, 0] >= start] for rows in several])
    return [*found[np.argsort(found[:, 0])]]


def _is_compiled() -> bool:
    """Returns whether XLA compiles the graph that is built."""
    is_asked_for = "cpu_global_jit" in os.environ.get("TF_XLA_FLAGS", "")
    return is_asked_for or GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph())
