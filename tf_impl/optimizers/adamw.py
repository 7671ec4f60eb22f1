"""AdamW."""

import math
from collections.abc import Sequence

import tensorflow as tf

from samestep.common.workload.optimizers.adamw import AdamW


def update(spec: AdamW, w: tf.Variable, g: tf.Tensor, slots: Sequence[tf.Variable], coefficients: tf.Tensor) -> None:
    """Updates a parameter and its moments in place.

    Args:
        spec: The hyper-parameters that are the same in every step.
        w: The parameter.
        g: Its gradient.
        slots: Its first and second moment.
        coefficients: The coefficients of the step.
    """
    rate, decay, first_correction, second_root = tf.unstack(tf.cast(coefficients, w.dtype))
    m = slots[0].assign(spec.beta1 * slots[0] + (1 - spec.beta1) * g)
    s = slots[1].assign(spec.beta2 * slots[1] + (1 - spec.beta2) * g * g)
    w.assign(w * decay - rate / first_correction * m / (tf.sqrt(s) / second_root + spec.epsilon))


def coefficients(spec: AdamW, step: int) -> list[float]:
    """Returns the learning rate, what decay leaves of a weight, and the bias corrections 1 - beta1^t and sqrt(1 - beta2^t).

    Args:
        spec: The hyper-parameters, with the learning rate of the step.
        step: The number t of the step, from 1.
    """
    rate = spec.learning_rate
    corrections = [1 - spec.beta1**step, math.sqrt(1 - spec.beta2**step)]
    return [rate, 1 - rate * spec.weight_decay, *corrections]
