"""SGD with momentum."""

from collections.abc import Sequence

import tensorflow as tf

from samestep.common.workload.optimizers.sgd import Sgd


def update(spec: Sgd, w: tf.Variable, g: tf.Tensor, slots: Sequence[tf.Variable], coefficients: tf.Tensor) -> None:
    """Updates a parameter and its momentum in place.

    Args:
        spec: The hyper-parameters that are the same in every step.
        w: The parameter.
        g: Its gradient.
        slots: Its momentum.
        coefficients: The coefficients of the step.
    """
    (v,) = slots
    (rate,) = tf.unstack(tf.cast(coefficients, w.dtype))
    w.assign_sub(rate * v.assign(spec.momentum * v + g))


def coefficients(spec: Sgd, step: int) -> list[float]:
    """Returns the learning rate.

    Args:
        spec: The hyper-parameters, with the learning rate of the step.
        step: Not used; nothing else changes.
    """
    return [spec.learning_rate]
