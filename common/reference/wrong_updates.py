"""The updates of the mutants: each is an optimizer's, wrong in one known way."""

import dataclasses
import math
from collections.abc import Callable

import numpy as np

from samestep.common.program import Arrays
from samestep.common.reference.optimizers import Update
from samestep.common.workload.optimizers import OptimizerSpec

WrongUpdate = Callable[[Update, OptimizerSpec, int, np.ndarray, np.ndarray, Arrays], None]
"""The right update, then the arguments of `Update`."""


def old_momentum(right: Update, spec: OptimizerSpec, t: int, w: np.ndarray, g: np.ndarray, slots: Arrays) -> None:
    """Moves the weights by the velocity of the step before."""
    before = slots["momentum"].copy()
    right(spec, t, w.copy(), g, slots)
    w -= spec.learning_rate * before


def nesterov(right: Update, spec: OptimizerSpec, t: int, w: np.ndarray, g: np.ndarray, slots: Arrays) -> None:
    """Looks ahead along the new velocity."""
    right(spec, t, w.copy(), g, slots)
    w -= spec.learning_rate * (g + spec.momentum * slots["momentum"])


def _moments(spec: OptimizerSpec, g: np.ndarray, slots: Arrays) -> None:
    slots["first_moment"] *= spec.beta1
    slots["first_moment"] += (1 - spec.beta1) * g
    slots["second_moment"] *= spec.beta2
    slots["second_moment"] += (1 - spec.beta2) * g * g


def epsilon_inside(right: Update, spec: OptimizerSpec, t: int, w: np.ndarray, g: np.ndarray, slots: Arrays) -> None:
    """Adds epsilon below the root."""
    _moments(spec, g, slots)
    w -= spec.learning_rate * spec.weight_decay * w
    root = np.sqrt(slots["second_moment"] / (1 - spec.beta2**t) + spec.epsilon)
    w -= spec.learning_rate / (1 - spec.beta1**t) * slots["first_moment"] / root


def epsilon_hat(right: Update, spec: OptimizerSpec, t: int, w: np.ndarray, g: np.ndarray, slots: Arrays) -> None:
    """Adds epsilon to the root that is not corrected for its bias."""
    _moments(spec, g, slots)
    w -= spec.learning_rate * spec.weight_decay * w
    rate = spec.learning_rate * math.sqrt(1 - spec.beta2**t) / (1 - spec.beta1**t)
    w -= rate * slots["first_moment"] / (np.sqrt(slots["second_moment"]) + spec.epsilon)


def no_correction(right: Update, spec: OptimizerSpec, t: int, w: np.ndarray, g: np.ndarray, slots: Arrays) -> None:
    """Leaves the moments uncorrected."""
    _moments(spec, g, slots)
    w -= spec.learning_rate * spec.weight_decay * w
    w -= spec.learning_rate * slots["first_moment"] / (np.sqrt(slots["second_moment"]) + spec.epsilon)


def coupled_decay(right: Update, spec: OptimizerSpec, t: int, w: np.ndarray, g: np.ndarray, slots: Arrays) -> None:
    """Adds the weight decay to the gradient."""
    right(dataclasses.replace(spec, weight_decay=0.0), t, w, g + spec.weight_decay * w, slots)


def decay_without_rate(right: Update, spec: OptimizerSpec, t: int, w: np.ndarray, g: np.ndarray, slots: Arrays) -> None:
    """Decays the weights without multiplying by the learning rate."""
    w *= 1 - spec.weight_decay
    right(dataclasses.replace(spec, weight_decay=0.0), t, w, g, slots)
