"""The hashes of examples, computed in a graph: the twin of the statement in common/steps/rows.py, without its last mixing."""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from samestep.common.steps.rows import INPUT_STRIDE, coefficients


def sums_of_words(inputs: Sequence[tf.Tensor]) -> tf.Tensor:
    """Sums words x coefficients.

    Args:
        inputs: Each [examples, ...], as `hash_rows` takes them.

    Returns:
        int64 [examples], to be mixed on the host.
    """
    return tf.add_n([_sums(each, place) for place, each in enumerate(inputs)])


def _sums(values: tf.Tensor, place: int) -> tf.Tensor:
    if values.dtype.is_floating:
        words = tf.cast(tf.bitcast(tf.cast(values, tf.float32), tf.uint32), tf.int64)
    else:
        words = tf.cast(values, tf.int64)
    shape = values.shape[1:]
    size = shape.num_elements() if shape.rank is not None else None
    if size is None:
        words = tf.reshape(words, [tf.shape(words)[0], tf.reduce_prod(tf.shape(words)[1:])])
        return tf.reduce_sum(words * _coefficients(place, tf.shape(words)[1]), axis=1)
    words = tf.reshape(words, [-1, size]) if size else tf.reshape(words, [tf.shape(words)[0], 0])
    return tf.reduce_sum(words * coefficients(place, size).view(np.int64), axis=1)


def _coefficients(place: int, size: tf.Tensor) -> tf.Tensor:
    """The coefficients of examples whose size is not known when the graph is built."""
    values = (tf.range(tf.cast(size, tf.int64)) + (place * INPUT_STRIDE + 1)) * _signed(0x9E3779B97F4A7C15)
    values = (values ^ _shifted(values, 30)) * _signed(0xBF58476D1CE4E5B9)
    values = (values ^ _shifted(values, 27)) * _signed(0x94D049BB133111EB)
    return tf.bitwise.bitwise_or(values ^ _shifted(values, 31), tf.constant(1, tf.int64))


def _shifted(values: tf.Tensor, places: int) -> tf.Tensor:
    """A shift of unsigned numbers: TensorFlow's shift of int64 copies the sign."""
    return tf.bitwise.right_shift(values, tf.constant(places, tf.int64)) & ((1 << (64 - places)) - 1)


def _signed(value: int) -> int:
    return value - 2**64 if value >= 2**63 else value
