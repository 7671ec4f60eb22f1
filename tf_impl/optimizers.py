"""The updates, word for word as in `common/workload/optimizers.py`.

By hand: the optimizers of Keras are another algebra (epsilon inside the bias correction, 1e-7 by default) and pass
their hyper-parameters through float32 even in a float64 run.
"""

import math
from collections.abc import Sequence

import tensorflow as tf

from samestep.common.workload.optimizers import OptimizerSpec


def sgd(
    spec: OptimizerSpec, w: tf.Variable, g: tf.Tensor, slots: Sequence[tf.Variable], corrections: tf.Tensor
) -> None:
    """Updates by SGD with momentum.

    Args:
        spec: The hyper-parameters.
        w: The parameter, updated in place.
        g: Its gradient.
        slots: Its momentum, updated in place.
        corrections: Ignored: SGD corrects no bias.
    """
    (v,) = slots
    w.assign_sub(spec.learning_rate * v.assign(spec.momentum * v + g))


def adamw(
    spec: OptimizerSpec, w: tf.Variable, g: tf.Tensor, slots: Sequence[tf.Variable], corrections: tf.Tensor
) -> None:
    """Updates by AdamW.

    Args:
        spec: The hyper-parameters.
        w: The parameter, updated in place.
        g: Its gradient.
        slots: Its first and second moment, updated in place.
        corrections: 1 - beta1^t and sqrt(1 - beta2^t).
    """
    first_correction, second_root = tf.unstack(tf.cast(corrections, w.dtype))
    m = slots[0].assign(spec.beta1 * slots[0] + (1 - spec.beta1) * g)
    s = slots[1].assign(spec.beta2 * slots[1] + (1 - spec.beta2) * g * g)
    decayed = w * (1 - spec.learning_rate * spec.weight_decay)
    w.assign(decayed - spec.learning_rate / first_correction * m / (tf.sqrt(s) / second_root + spec.epsilon))


UPDATES = {"sgd": sgd, "adamw": adamw}


def corrections(spec: OptimizerSpec, step: int) -> tf.Tensor:
    """Computes the bias corrections [2] in float64; SGD ignores them, but a fixed shape traces once.

    Args:
        spec: The hyper-parameters.
        step: The number t of the step, from 1.
    """
    return tf.constant([1 - spec.beta1**step, math.sqrt(1 - spec.beta2**step)], tf.float64)
