"""The updates, word for word as in `common/workload/optimizers/`, a file for each.

They are written by hand because Keras' optimizers have another algebra (epsilon inside the bias correction, 1e-7 by
default) and pass their hyper-parameters through float32 even in a float64 run. Each file has `update`, and
`coefficients`: what changes from step to step, computed in float64.
"""

import functools
import importlib
from collections.abc import Callable, Sequence
from types import ModuleType

import tensorflow as tf

from samestep.common.workload.optimizers.spec import OptimizerSpec, groups_vectors, of_dimensions

Update = Callable[[tf.Variable, tf.Tensor, Sequence[tf.Variable], tf.Tensor], None]
"""A function that changes a parameter and its slots, given (parameter, gradient, slots, coefficients of the step)."""


def bind_update(spec: OptimizerSpec) -> Update:
    """Binds an optimizer's update to its hyper-parameters."""
    update = _file(spec.name).update

    def bound(w: tf.Variable, g: tf.Tensor, slots: Sequence[tf.Variable], coefficients: tf.Tensor) -> None:
        update(spec, w, g, slots, coefficients[int(groups_vectors(spec) and w.shape.rank > 1)])

    return bound


def coefficients(spec: OptimizerSpec, step: int) -> tf.Tensor:
    """Computes what changes from step to step, which is an argument of the traced step, so the step is traced only once.

    The result has one row for all parameters, or one for vectors and one for the others if they are updated differently.

    Args:
        spec: The hyper-parameters, with the learning rate of the step.
        step: The number t of the step, from 1.
    """
    kinds = [of_dimensions(spec, number) for number in (1, 2)] if groups_vectors(spec) else [spec]
    own = _file(spec.name).coefficients
    return tf.constant([own(each, step) for each in kinds], tf.float64)


@functools.cache
def _file(name: str) -> ModuleType:
    """Returns the file of an optimizer, which every step asks for: an import takes longer than its coefficients."""
    return importlib.import_module(f"{__name__}.{name}")
