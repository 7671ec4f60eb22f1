"""Muon, in the dtype of the run: Keras' own (3.15) fails in float64."""

from collections.abc import Sequence

import tensorflow as tf

from samestep.common.workload.optimizers.muon import COEFFICIENTS, LEAST_NORM, ROUNDS, Muon, move
from samestep.tf_impl.optimizers import adamw


def update(spec: Muon, w: tf.Variable, g: tf.Tensor, slots: Sequence[tf.Variable], coefficients: tf.Tensor) -> None:
    """Updates a parameter and its moments in place.

    Args:
        spec: The hyper-parameters that are the same in every step.
        w: The parameter.
        g: Its gradient.
        slots: Its first moment, and if it is not a matrix also its second moment.
        coefficients: The coefficients of the step.
    """
    if len(slots) > 1:
        adamw.update(spec, w, g, slots, coefficients)
        return
    rate, decay, *_ = tf.unstack(tf.cast(coefficients, w.dtype))
    v = slots[0].assign(spec.beta1 * slots[0] + (1 - spec.beta1) * g)
    ahead = spec.beta1 * v + (1 - spec.beta1) * g
    w.assign(w * decay - rate * move(*w.shape) * orthogonalized(ahead))


def orthogonalized(matrix: tf.Tensor) -> tf.Tensor:
    """Returns a matrix with the same singular vectors, and singular values near one."""
    a, b, c = (tf.constant(each, matrix.dtype) for each in COEFFICIENTS)
    x = matrix / tf.maximum(tf.sqrt(tf.reduce_sum(matrix * matrix)), tf.constant(LEAST_NORM, matrix.dtype))
    is_tall = x.shape[0] > x.shape[1]
    x = tf.transpose(x) if is_tall else x
    for _ in range(ROUNDS):
        square = tf.matmul(x, x, transpose_b=True)
        x = a * x + tf.matmul(b * square + c * tf.matmul(square, square), x)
    return tf.transpose(x) if is_tall else x


coefficients = adamw.coefficients
"""The coefficients of AdamW; matrices have the same rate and decay."""
