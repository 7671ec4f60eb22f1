"""The updates, word for word as in `common/workload/optimizers.py`.

By hand: the optimizers of Keras are another algebra (epsilon inside the bias correction, 1e-7 by default) and pass
their hyper-parameters through float32 even in a float64 run.
"""

import math
from collections.abc import Sequence

import tensorflow as tf

from samestep.common.workload.optimizers import OptimizerSpec


def sgd(
    spec: OptimizerSpec, w: tf.Variable, g: tf.Tensor, slots: Sequence[tf.Variable], coefficients: tf.Tensor
) -> None:
    """Updates by SGD with momentum.

    Args:
        spec: The hyper-parameters that are the same in every step.
        w: The parameter, updated in place.
        g: Its gradient.
        slots: Its momentum, updated in place.
        coefficients: Those of the step.
    """
    (v,) = slots
    rate, *_ = tf.unstack(tf.cast(coefficients, w.dtype))
    w.assign_sub(rate * v.assign(spec.momentum * v + g))


def adamw(
    spec: OptimizerSpec, w: tf.Variable, g: tf.Tensor, slots: Sequence[tf.Variable], coefficients: tf.Tensor
) -> None:
    """Updates by AdamW.

    Args:
        spec: The hyper-parameters that are the same in every step.
        w: The parameter, updated in place.
        g: Its gradient.
        slots: Its first and second moment, updated in place.
        coefficients: Those of the step.
    """
    rate, decay, first_correction, second_root = tf.unstack(tf.cast(coefficients, w.dtype))
    m = slots[0].assign(spec.beta1 * slots[0] + (1 - spec.beta1) * g)
    s = slots[1].assign(spec.beta2 * slots[1] + (1 - spec.beta2) * g * g)
    w.assign(w * decay - rate / first_correction * m / (tf.sqrt(s) / second_root + spec.epsilon))


UPDATES = {"sgd": sgd, "adamw": adamw}


def coefficients(spec: OptimizerSpec, step: int) -> tf.Tensor:
    """Computes what changes from step to step in float64: the rate, what decay leaves of a weight, and bias corrections.

    An argument of the traced step, so that it is traced once. It has all four for SGD as well, which takes the rate.

    Args:
        spec: The hyper-parameters, with the learning rate of the step.
        step: The number t of the step, from 1.

    Returns:
        lr, 1 - lr * weight_decay, 1 - beta1^t and sqrt(1 - beta2^t).
    """
    rate = spec.learning_rate
    corrections = [1 - spec.beta1**step, math.sqrt(1 - spec.beta2**step)]
    return tf.constant([rate, 1 - rate * spec.weight_decay, *corrections], tf.float64)
