"""What a record keeps of tensors, computed in a graph: one vector of integers for all of them, so one read is enough."""

import functools
import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from samestep.common.steps.keras.variable_layout import KerasLayout
from samestep.common.steps.projections import BITS, PROJECTIONS, stored_bits
from samestep.common.steps.record import stats_dtype
from samestep.tf_impl.recording.graphs.unseen import mark

NUMBERS = PROJECTIONS + 2
"""How many numbers are kept of a tensor: its projections, square norm and sum of bits."""
_ABSENT = -(2**63)
"""In place of the sum of bits of a tensor that is not there; no other sum is this."""
_MOST_HELD = 2**15
"""The most signs of a tensor that a graph holds itself."""
_FEW_NUMBERS = _MOST_HELD // PROJECTIONS
"""A matrix of up to this many numbers is a line: copying it next to others of its shape costs less than separate ops."""
_LARGE = 2**16
"""From this many numbers on, memory for an update that may not overwrite a gradient costs more than a condition."""


class HalfProjected(NamedTuple):
    """What was computed from a matrix before its last product, for a gradient that is not kept until the update is made.

    Attributes:
        square: Half the square norm.
        bits: The sum of bits.
        halves: [PROJECTIONS, columns]: the first product.
        dtype: The type of the matrix.
    """

    square: tf.Tensor
    bits: tf.Tensor
    halves: tf.Tensor
    dtype: tf.DType


class _Signs:
    """How one tensor is projected: as a matrix of its first axes and its last ones, or as a line if it is small."""

    def __init__(self, layout: KerasLayout, dtype: tf.DType) -> None:
        """Makes the constants.

        Args:
            layout: The layout of the tensor.
            dtype: The type of the products.
        """
        rows, columns = (np.ascontiguousarray(each.T) for each in layout.signs())
        first, last = (columns, rows) if layout.is_turned else (rows, columns)
        self.shape = [first.shape[1], last.shape[1]]
        self.is_line = 1 in self.shape or math.prod(self.shape) <= _FEW_NUMBERS
        if self.is_line:
            self.shape = [math.prod(self.shape)]
            last = (first[:, :, None] * last[:, None, :]).reshape(PROJECTIONS, *self.shape)
        else:
            self.first = _constant(np.ascontiguousarray(first.T), dtype)  # [rows, PROJECTIONS] is packed faster
        self.key = last.tobytes()
        self.last = _constant(last, dtype)


def _constant(values: np.ndarray, dtype: tf.DType) -> np.ndarray | tf.Tensor:
    """Returns a constant that a graph holds, or is given if it is large: each input takes time in every step."""
    return values.astype(dtype.as_numpy_dtype) if values.size <= _MOST_HELD else tf.constant(values, dtype)


class Statistics:
    """Computes the statistics of a list of tensors. Its large constants are made once, outside of any graph.

    As in torch, a projection is two products. The second is one for all matrices with the same signs, and lines of one length go
    together: an op costs more than the numbers in it.
    """

    def __init__(self, layouts: Sequence[KerasLayout], is_float64: bool) -> None:
        """Makes the signs.

        Args:
            layouts: The layouts of the tensors.
            is_float64: Whether to compute in float64.
        """
        self._dtype = tf.float64 if is_float64 else tf.float32
        with tf.init_scope():
            self._signs = [_Signs(layout, self._dtype) for layout in layouts]
        self._compiled: dict[tuple[bool, ...], Any] = {}

    def __call__(self, *lists: Sequence[tf.Tensor | HalfProjected | None]) -> tf.Tensor:
        """Computes the statistics.

        Args:
            lists: Lists of the tensors, with None for those that are not there. Computing them together takes fewer ops.

        Returns:
            int64 [lists * tensors * NUMBERS]: the bits of the float64 projections and square norm of each, and its sum of bits.
        """
        values = [value for each in lists for value in each]
        if not tf.executing_eagerly():
            return self._in_graph(values)
        given = [None if value is None else tf.convert_to_tensor(value) for value in values]
        pattern = tuple(value is None for value in given)
        if pattern not in self._compiled:
            self._compiled[pattern] = tf.function(self._in_graph, autograph=False).get_concrete_function(given)
        return self._compiled[pattern](given)

    def see(self, place: int, value: tf.Tensor, condition: tf.Tensor) -> HalfProjected | None:
        """Computes in a graph, if a condition holds, everything that reads a large matrix; returns None for other tensors.

        Args:
            place: The place of the tensor in the list.
            value: The matrix.
            condition: A tensor; where it does not hold, the numbers are zero.
        """
        signs = self._signs[place]
        if signs.is_line or math.prod(signs.shape) < _LARGE:
            return None
        halves = tf.zeros([PROJECTIONS, signs.shape[1]], self._dtype)
        nothing = tf.zeros([], self._dtype), tf.zeros([], _words(value).dtype), halves
        found = tf.cond(
            condition, lambda: self._of_matrix(tf.reshape(value, signs.shape), signs.first), lambda: nothing
        )
        mark(found[0], is_gradient=True)
        return HalfProjected(*found, dtype=value.dtype)

    def _in_graph(self, values: Sequence[tf.Tensor | HalfProjected | None]) -> tf.Tensor:
        groups: dict[tuple[object, ...], list[int]] = {}
        tensors = [
            value if value is None or isinstance(value, HalfProjected) else tf.convert_to_tensor(value)
            for value in values
        ]
        for place, (value, signs) in enumerate(zip(tensors, itertools.cycle(self._signs))):
            if value is not None:
                groups.setdefault((signs.is_line, value.dtype, signs.key), []).append(place)
        parts = [self._of_group(places, tensors) for places in groups.values()]
        absent = [place for place, value in enumerate(tensors) if value is None]
        nothing = tf.fill([len(absent), NUMBERS - 1], tf.constant(float("nan"), self._dtype))
        floats = tf.concat([*(tf.concat([of[0], of[1][:, None]], 1) for of in parts), nothing], 0)
        bits = tf.concat(
            [*(tf.cast(of[2], tf.int64) for of in parts), tf.fill([len(absent)], tf.constant(_ABSENT, tf.int64))], 0
        )
        words = tf.concat([tf.bitcast(tf.cast(floats, tf.float64), tf.int64), bits[:, None]], 1)
        order = np.argsort([*(place for places in groups.values() for place in places), *absent])
        return tf.reshape(tf.gather(words, order), [-1])

    def _of_group(self, places: Sequence[int], tensors: Sequence[Any]) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Returns the projections, square norms and sums of bits of tensors whose last products have the same signs."""
        signs = [self._signs[place % len(self._signs)] for place in places]
        values = [
            each if isinstance(each := tensors[place], HalfProjected) else tf.reshape(each, of.shape)
            for place, of in zip(places, signs, strict=True)
        ]
        if signs[0].is_line:
            lines = tf.stack(values)
            x_NS = tf.cast(lines, self._dtype)
            projected = tf.add_n([tf.matmul(each, signs[0].last, transpose_b=True) for each in _parts(x_NS)])
            words = _words(lines)
            return projected, tf.reduce_sum(x_NS * x_NS, 1), tf.reduce_sum(words, range(1, words.shape.rank))
        found = [
            value[:3] if isinstance(value, HalfProjected) else self._of_matrix(value, each.first)
            for value, each in zip(values, signs, strict=True)
        ]
        squares, bits, halves = (tf.stack(each) for each in zip(*found, strict=True))
        return tf.reduce_sum(halves * signs[0].last, 2), 2 * squares, bits

    def _of_matrix(self, value: tf.Tensor, signs: np.ndarray | tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Returns half the square norm of a matrix, its sum of bits, and its product: one after the other, while it is cached."""
        x = tf.cast(value, self._dtype)
        square = tf.nn.l2_loss(x)
        with tf.control_dependencies([square]):
            bits = tf.reduce_sum(_words(value))
        with tf.control_dependencies([bits]):
            return square, bits, tf.add_n([tf.matmul(signs, each, transpose_a=True) for each in _parts(x)])


def _parts(values: tf.Tensor) -> list[tf.Tensor]:
    """Splits a factor of products. With TF32, a GPU drops the last 13 bits of a float32, so these become a second part."""
    if values.dtype != tf.float32 or not _has_gpu() or not tf.config.experimental.tensor_float_32_execution_enabled():
        return [values]
    words = tf.bitwise.bitwise_and(tf.bitcast(values, tf.int32), tf.constant(-(2**13), tf.int32))
    upper = tf.bitcast(words, tf.float32)
    return [upper, tf.where(tf.math.is_finite(values), values - upper, 0.0)]  # only one part is infinite


def _words(values: tf.Tensor) -> tf.Tensor:
    """Returns the words of tensors; only the last 32 bits of their sums count."""
    words = tf.bitcast(values, {1: tf.uint8, 2: tf.uint16, 4: tf.int32, 8: tf.int32}[values.dtype.size])
    wide = tf.int64 if _has_gpu() else tf.int32  # TensorFlow brings int32 of a GPU to the host
    return tf.cast(words, wide)


@functools.cache
def _has_gpu() -> bool:
    return bool(tf.config.list_logical_devices("GPU"))


def unpack(words: np.ndarray, is_float64: bool) -> np.ndarray:
    """Returns the statistics in the form that a record has.

    Args:
        words: int64 [tensors * NUMBERS].
        is_float64: Whether the record is of a run in float64.
    """
    table = words.reshape(-1, NUMBERS)
    stats = np.zeros(len(table), stats_dtype(is_float64))
    floats = np.ascontiguousarray(table[:, :-1]).view(np.float64)
    stats["projections"], stats["square"] = floats[:, :-1], floats[:, -1]
    bits = stored_bits(table[:, -1].view(np.uint64) & np.uint64(BITS), stats["square"])
    stats["bits"] = np.where(table[:, -1] == _ABSENT, 0, bits)
    return stats
