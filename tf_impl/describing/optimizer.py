"""Finds out by experiment what the user's Keras optimizer keeps, and whether it updates each parameter independently."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from samestep.common.workload.declaration import Model
from samestep.common.workload.models.findings import DescribedOptimizer
from samestep.common.workload.optimizers.user_optimizer import UserOptimizer
from samestep.tf_impl.optimizers import own

_SAME = 1e-9
"""How far two updates in float64 may be apart, relative to the largest move of a parameter."""
_STEPS = 2
"""The number of steps: the second one depends on the state after the first."""
Values = list[np.ndarray]


def describe_optimizer(model: Model, params: Mapping[str, np.ndarray], source: str) -> DescribedOptimizer | None:
    """Describes the user's optimizer; None if the file has none.

    Args:
        model: The declaration.
        params: The trained parameters, by neutral name.
        source: Where it is declared, for messages.

    Raises:
        ConfigError: The function fails, or does not return a Keras optimizer.
    """
    if model.optimizer is None:
        return None
    if "tf" not in model.optimizer:
        return DescribedOptimizer(refused=f"has an optimizer for {', '.join(model.optimizer)} only; add one for tf")
    built = own.made(source)
    name, rate = type(built).__name__, float(np.asarray(built.learning_rate))
    if number := built.gradient_accumulation_steps:
        said = f"has {name}, which updates only in every {number}th step (gradient_accumulation_steps={number})"
        return DescribedOptimizer(learning_rate=rate, refused=said)
    slots: tuple[str, ...] | None = None
    for path, value in params.items():
        variables = own.kept(own.template(source, last := path.rpartition("/")[2], value.shape, "float64"), last)
        if odd := _odd(variables, value, slots):
            return DescribedOptimizer(learning_rate=rate, refused=f"has {name}, {odd}")
        slots = tuple(slot for slot, _ in variables)
    assert slots is not None
    moved = _moved_otherwise(source, slots, rate, params)
    return DescribedOptimizer(learning_rate=rate, kept=slots, refused=f"has {name}, which {moved}" if moved else "")


def _odd(variables: Sequence[tuple[str, Any]], value: np.ndarray, slots: Sequence[str] | None) -> str:
    """Says why rows cannot hold what an optimizer keeps of a parameter; "" if they can."""
    for slot, variable in variables:
        if tuple(variable.shape) != value.shape:
            return f"which keeps `{slot}`, not shaped like its parameter: no row could gather it"
        if np.asarray(variable).any():
            return f"whose `{slot}` does not start at zero, as all state of TensorFlow's rows does"
    names = tuple(slot for slot, _ in variables)
    return "which does not keep the same state for all parameters" if slots not in (None, names) else ""


def _moved_otherwise(source: str, slots: Sequence[str], rate: float, params: Mapping[str, np.ndarray]) -> str:
    """Updates all parameters together as Keras does, and each alone as rows do; says which one moves differently, or ""."""
    import keras  # here: our own models do without it

    draw = np.random.default_rng(0)
    gradients = [draw.normal(size=value.shape) for value in params.values()]
    variables = [keras.Variable(value, dtype="float64", name=name.rpartition("/")[2]) for name, value in params.items()]
    whole, spec = own.made(source), UserOptimizer(rate, source, tuple(slots), (), rate)
    whole.build(variables)
    for _ in range(_STEPS):
        whole.apply([tf.constant(each) for each in gradients], variables)
    for (name, value), gradient, variable in zip(params.items(), gradients, variables, strict=True):
        alone = tf.Variable(value, name=name.rpartition("/")[2])
        state = [tf.Variable(np.zeros_like(value)) for _ in slots]
        for step in range(1, _STEPS + 1):
            own.update(spec, alone, tf.constant(gradient), state, tf.constant(own.coefficients(spec, step), tf.float64))
        ended = np.asarray(variable)
        if np.abs(ended - alone.numpy()).max() > _SAME * (np.abs(ended - value).max() or 1.0):
            return f"moves {name} differently when it is given that parameter alone, as rows of TensorFlow do"
    return ""
