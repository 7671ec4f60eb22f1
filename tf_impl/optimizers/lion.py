"""Lion."""

from collections.abc import Sequence

import tensorflow as tf

from samestep.common.workload.optimizers.lion import Lion


def update(spec: Lion, w: tf.Variable, g: tf.Tensor, slots: Sequence[tf.Variable], coefficients: tf.Tensor) -> None:
    """Updates a parameter and its moment in place.

    Args:
        spec: The hyper-parameters that are the same in every step.
        w: The parameter.
        g: Its gradient.
        slots: Its first moment.
        coefficients: The coefficients of the step.
    """
    rate, decay = tf.unstack(tf.cast(coefficients, w.dtype))
    (m,) = slots
    direction = tf.sign(spec.beta1 * m + (1 - spec.beta1) * g)
    w.assign(w * decay - rate * direction)
    m.assign(spec.beta2 * m + (1 - spec.beta2) * g)


def coefficients(spec: Lion, step: int) -> list[float]:
    """Returns the learning rate, and what decay leaves of a weight.

    Args:
        spec: The hyper-parameters, with the learning rate of the step.
        step: Not used; nothing else changes.
    """
    return [spec.learning_rate, 1 - spec.learning_rate * spec.weight_decay]
