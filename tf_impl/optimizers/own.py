"""The Keras optimizer that the user's file builds: takes its own step on one parameter and its state."""

import functools
import types
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from samestep.common.errors import ConfigError
from samestep.common.workload.declared import call_user, load_model
from samestep.common.workload.optimizers.user_optimizer import UserOptimizer

_OF_TENSORS = ("assign", "assign_add", "assign_sub", "stateless_apply", "add_variable_from_reference", "_var_key")
_OF_ONE_DEVICE = ("_apply_weight_decay", "_backend_update_step", "_overwrite_model_variables_with_average_value")
"""Methods that Keras 3.15 overrides for TensorFlow's variables and strategies. We call the optimizer with tensors, on the device
of a variable, so the general methods are right.
"""


def made(source: str) -> Any:
    """Makes the user's optimizer by calling the function that returns it.

    Args:
        source: Where the optimizer is declared.

    Raises:
        ConfigError: The function fails, or does not return a Keras optimizer.
    """
    import keras  # here: our own optimizers do without it

    builders = load_model(source, "tf").optimizer
    assert builders is not None
    built = call_user(builders["tf"], source, "the function given as optimizer")
    if not isinstance(built, keras.optimizers.Optimizer):
        kind = type(built).__name__
        raise ConfigError(f"--model {source}: the function given as optimizer returned {kind}, not a Keras optimizer.")
    return built


@functools.lru_cache
def template(source: str, name: str, shape: tuple[int, ...], dtype: str) -> Any:
    """Builds the optimizer for one parameter; its variables only show what state there is, and hold nothing of a run.

    Args:
        source: Where the optimizer is declared.
        name: The last part of the parameter's name, by which a file may leave it without decay.
        shape: Its shape.
        dtype: Its dtype.
    """
    import keras  # here: our own optimizers do without it
    from keras.src.optimizers.base_optimizer import BaseOptimizer

    with tf.init_scope():
        built = made(source)
        for method in (*_OF_TENSORS, *_OF_ONE_DEVICE):
            object.__setattr__(built, method, types.MethodType(getattr(BaseOptimizer, method), built))
        built.build([keras.Variable(tf.zeros(shape, dtype), dtype=dtype, name=name)])
        if _schedule(source) is not None:
            built._learning_rate = keras.Variable(0.0, name="learning_rate")
            built._track_variable(built._learning_rate)
    return built


@functools.lru_cache
def _schedule(source: str) -> Callable[[int], object] | None:
    """Returns the file's own learning-rate schedule; None if its learning rate is fixed."""
    from keras.optimizers.schedules import LearningRateSchedule  # here: our own optimizers do without it

    rate = made(source)._learning_rate
    return rate if isinstance(rate, LearningRateSchedule) else None


def kept(built: Any, name: str) -> list[tuple[str, Any]]:
    """Returns the variables of a template except its rate and the count of its steps, each with its name.

    Args:
        built: The template.
        name: The name that `template` was given.
    """
    return [(each.name.removeprefix(f"{name}_"), each) for each in built.variables if not _is_counted(built, each)]


def _is_counted(built: Any, variable: Any) -> bool:
    return any(variable is each for each in (built._iterations, built._learning_rate))


def update(
    spec: UserOptimizer, w: tf.Variable, g: tf.Tensor, slots: Sequence[tf.Variable], coefficients: tf.Tensor
) -> None:
    """Updates a parameter and its state in place.

    Args:
        spec: The optimizer, which says where it is declared.
        w: The parameter.
        g: Its gradient.
        slots: The state, in the order of `kept`.
        coefficients: The coefficients of the step.
    """
    name = w.name.partition(":")[0].partition("/replica")[0].rpartition("/")[2]
    built = template(spec.source, name, tuple(w.shape), w.dtype.name)
    rate, steps = tf.unstack(coefficients)
    values = iter(slots)
    given = [
        tf.cast(steps if each is built._iterations else rate, each.dtype)
        if _is_counted(built, each)
        else tf.convert_to_tensor(next(values))
        for each in built.variables
    ]
    moved, state = built.stateless_apply(given, [g], [tf.convert_to_tensor(w)])
    w.assign(moved[0])
    left = [value for each, value in zip(built.variables, state, strict=True) if not _is_counted(built, each)]
    for slot, value in zip(slots, left, strict=True):
        slot.assign(value)


def coefficients(spec: UserOptimizer, step: int) -> list[float]:
    """Returns the learning rate, by the file's own schedule unless the run has another one, and the number of earlier steps.

    Args:
        spec: The optimizer, with the learning rate of the step.
        step: The number t of the step, from 1.
    """
    schedule = _schedule(spec.source) if spec.learning_rate == spec.file_rate else None
    return [spec.learning_rate if schedule is None else float(np.asarray(schedule(step - 1))), step - 1]
