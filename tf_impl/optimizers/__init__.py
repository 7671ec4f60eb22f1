"""The updates, word for word as in `common/workload/optimizers/`, a file for each.

By hand: the optimizers of Keras are another algebra (epsilon inside the bias correction, 1e-7 by default) and pass
their hyper-parameters through float32 even in a float64 run. Each file has `update`, and `coefficients`: what changes from
step to step, computed in float64.
"""

import functools
import importlib
from collections.abc import Callable, Sequence

import tensorflow as tf

from samestep.common.workload.optimizers.spec import OptimizerSpec

Update = Callable[[tf.Variable, tf.Tensor, Sequence[tf.Variable], tf.Tensor], None]
"""(parameter, gradient, its slots, coefficients of the step): changes the parameter and the slots."""


def bind_update(spec: OptimizerSpec) -> Update:
    """Binds an optimizer's update to its hyper-parameters."""
    return functools.partial(importlib.import_module(f"{__name__}.{spec.name}").update, spec)


def coefficients(spec: OptimizerSpec, step: int) -> tf.Tensor:
    """Computes what changes from step to step: an argument of the traced step, so that it is traced once.

    Args:
        spec: The hyper-parameters, with the learning rate of the step.
        step: The number t of the step, from 1.
    """
    return tf.constant(importlib.import_module(f"{__name__}.{spec.name}").coefficients(spec, step), tf.float64)
