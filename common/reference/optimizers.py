"""The updates, word for word as in `common/workload/optimizers.py`."""

import math
from collections.abc import Mapping

import numpy as np

from common.workload.optimizers import OptimizerSpec

Slots = dict[str, dict[str, np.ndarray]]


def sgd(spec: OptimizerSpec, step: int, w: np.ndarray, g: np.ndarray, slots: Mapping[str, np.ndarray]) -> None:
    """SGD with momentum, in place."""
    v = slots["momentum"]
    v *= spec.momentum
    v += g
    w -= spec.learning_rate * v


def adamw(spec: OptimizerSpec, step: int, w: np.ndarray, g: np.ndarray, slots: Mapping[str, np.ndarray]) -> None:
    """AdamW, in place; `step` is t, from 1."""
    m, s = slots["first_moment"], slots["second_moment"]
    w -= spec.learning_rate * spec.weight_decay * w
    m *= spec.beta1
    m += (1 - spec.beta1) * g
    s *= spec.beta2
    s += (1 - spec.beta2) * g * g
    root = np.sqrt(s) / math.sqrt(1 - spec.beta2**step)
    w -= spec.learning_rate / (1 - spec.beta1**step) * m / (root + spec.epsilon)


UPDATES = {"sgd": sgd, "adamw": adamw}


def empty_slots(spec: OptimizerSpec, params: Mapping[str, np.ndarray]) -> Slots:
    """Slots of zeros, one per slot name and parameter."""
    return {slot: {name: np.zeros_like(value) for name, value in params.items()} for slot in spec.slots}
