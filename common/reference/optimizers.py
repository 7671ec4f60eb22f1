"""The updates, word for word as in `common/workload/optimizers.py`."""

import math
from collections.abc import Callable, Mapping

import numpy as np

from samestep.common.program import Arrays
from samestep.common.workload.optimizers import OptimizerSpec

Update = Callable[[OptimizerSpec, int, np.ndarray, np.ndarray, Arrays], None]
"""(hyper-parameters, step from 1, weights, gradient, optimizer state): changes the weights and the state in place."""


def sgd(spec: OptimizerSpec, step: int, w: np.ndarray, g: np.ndarray, slots: Arrays) -> None:
    """Updates in place by SGD with momentum; the arguments are those of `Update`."""
    v = slots["momentum"]
    v *= spec.momentum
    v += g
    w -= spec.learning_rate * v


def adamw(spec: OptimizerSpec, step: int, w: np.ndarray, g: np.ndarray, slots: Arrays) -> None:
    """Updates in place by AdamW; the arguments are those of `Update`, where `step` is t."""
    m, s = slots["first_moment"], slots["second_moment"]
    w -= spec.learning_rate * spec.weight_decay * w
    m *= spec.beta1
    m += (1 - spec.beta1) * g
    s *= spec.beta2
    s += (1 - spec.beta2) * g * g
    root = np.sqrt(s) / math.sqrt(1 - spec.beta2**step)
    w -= spec.learning_rate / (1 - spec.beta1**step) * m / (root + spec.epsilon)


UPDATES: Mapping[str, Update] = {"sgd": sgd, "adamw": adamw}


def empty_slots(spec: OptimizerSpec, params: Arrays) -> dict[str, Arrays]:
    """Makes optimizer state of zeros, one array per slot name and parameter.

    Args:
        spec: The optimizer, which names its slots.
        params: The parameters, by name.
    """
    return {slot: {name: np.zeros_like(value) for name, value in params.items()} for slot in spec.slots}
