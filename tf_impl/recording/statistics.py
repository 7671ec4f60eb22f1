"""What a record keeps of tensors, computed in a graph: one vector of integers for all of them, so one read is enough."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from samestep.common.steps.keras_layout import KerasLayout
from samestep.common.steps.projections import PROJECTIONS
from samestep.common.steps.record import stats_dtype

NUMBERS = PROJECTIONS + 2
"""Of a tensor: its projections, square norm and sum of bits."""


class Statistics:
    """Computes the statistics of a list of tensors. Its constants are made once, outside of any graph."""

    def __init__(self, layouts: Sequence[KerasLayout], is_float64: bool) -> None:
        """Makes the signs.

        Args:
            layouts: The layouts of the tensors.
            is_float64: Whether to compute in float64.
        """
        self.layouts = layouts
        self._dtype = tf.float64 if is_float64 else tf.float32
        with tf.init_scope():
            self._signs = [[tf.constant(each.T, self._dtype) for each in layout.signs()] for layout in layouts]
        self._compiled: dict[tuple[bool, ...], Any] = {}

    def __call__(self, values: Sequence[tf.Tensor | None]) -> tf.Tensor:
        """Computes the statistics.

        Args:
            values: The tensors; None for those that are not there.

        Returns:
            int64 [tensors * NUMBERS]: of each the bits of the float64 projections and square norm, and the sum of bits.
        """
        if not tf.executing_eagerly():
            return self._in_graph(values)
        given = [None if value is None else tf.convert_to_tensor(value) for value in values]
        pattern = tuple(value is None for value in given)
        if pattern not in self._compiled:
            self._compiled[pattern] = tf.function(self._in_graph, autograph=False).get_concrete_function(given)
        return self._compiled[pattern](given)

    def _in_graph(self, values: Sequence[tf.Tensor | None]) -> tf.Tensor:
        floats, bits = [], []
        for value, layout, (of_rows, of_columns) in zip(values, self.layouts, self._signs, strict=True):
            if value is None:
                floats.append(tf.fill([NUMBERS - 1], tf.constant(float("nan"), self._dtype)))
                bits.append(tf.zeros([], tf.int64))
                continue
            value = tf.convert_to_tensor(value)
            bits.append(_sum_of_bits(value))
            matrix = tf.cast(tf.reshape(value, _matrix_shape(layout, of_rows, of_columns)), self._dtype)
            half = tf.matmul(of_columns, matrix, transpose_b=not layout.is_turned)  # [PROJECTIONS, rows], in few passes
            floats.append(tf.concat([tf.reduce_sum(of_rows * half, 1), [2 * tf.nn.l2_loss(matrix)]], 0))
        words = tf.bitcast(tf.cast(tf.stack(floats), tf.float64), tf.int64)
        return tf.reshape(tf.concat([words, tf.stack(bits)[:, None]], 1), [-1])


def _matrix_shape(layout: KerasLayout, of_rows: tf.Tensor, of_columns: tf.Tensor) -> list[int]:
    shape = [of_rows.shape[1], of_columns.shape[1]]
    return shape[::-1] if layout.is_turned else shape


def _sum_of_bits(value: tf.Tensor) -> tf.Tensor:
    words = {1: tf.uint8, 2: tf.uint16, 4: tf.uint32, 8: tf.int64}[value.dtype.size]
    return tf.reduce_sum(tf.cast(tf.bitcast(value, words), tf.int64))


def unpack(words: np.ndarray, is_float64: bool) -> np.ndarray:
    """Returns the statistics as a record keeps them.

    Args:
        words: int64 [tensors * NUMBERS].
        is_float64: Whether the record is of a run in float64.
    """
    table = words.reshape(-1, NUMBERS)
    stats = np.zeros(len(table), stats_dtype(is_float64))
    floats = np.ascontiguousarray(table[:, :-1]).view(np.float64)
    stats["projections"], stats["square"] = floats[:, :-1], floats[:, -1]
    stats["bits"] = table[:, -1].view(np.uint64)
    return stats
