"""Adafactor: Keras' own (3.15) adds epsilon to the squares, and keeps all of them in addition to their factors."""

from collections.abc import Sequence

import tensorflow as tf

from samestep.common.workload.optimizers.adafactor import Adafactor


def update(
    spec: Adafactor, w: tf.Variable, g: tf.Tensor, slots: Sequence[tf.Variable], coefficients: tf.Tensor
) -> None:
    """Updates a parameter and its moments in place.

    Args:
        spec: The hyper-parameters that are the same in every step.
        w: The parameter.
        g: Its gradient.
        slots: The factors of its second moment, along rows and columns, or all of it.
        coefficients: The coefficients of the step.
    """
    relative, decay, kept = tf.unstack(tf.cast(coefficients, w.dtype))
    squares = g * g
    means = [squares] if len(slots) == 1 else [tf.reduce_mean(squares, axis, keepdims=True) for axis in (1, 0)]
    moments = [slot.assign(kept * slot + (1 - kept) * mean) for slot, mean in zip(slots, means, strict=True)]
    estimate = (
        moments[0] if len(slots) == 1 else tf.math.divide_no_nan(moments[0] * moments[1], tf.reduce_mean(moments[0]))
    )
    direction = g / tf.maximum(tf.sqrt(estimate), tf.constant(spec.epsilon, w.dtype))
    length = relative * tf.maximum(tf.constant(spec.floor, w.dtype), _rms(w))
    w.assign(w * decay - length / tf.maximum(tf.constant(1, w.dtype), _rms(direction)) * direction)


def _rms(values: tf.Tensor) -> tf.Tensor:
    return tf.sqrt(tf.reduce_mean(values * values))


def coefficients(spec: Adafactor, step: int) -> list[float]:
    """Returns how far the step goes relative to the weights, what decay leaves of a weight, and what moments keep.

    Args:
        spec: The hyper-parameters, with the learning rate of the step.
        step: The number t of the step, from 1.
    """
    return [spec.relative_rate(step), 1 - spec.learning_rate * spec.weight_decay, spec.kept(step)]
