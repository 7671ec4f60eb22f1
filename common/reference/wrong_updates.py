"""The updates of the mutants: each is an `Update`, wrong in one known way."""

import dataclasses
import math
from collections.abc import Mapping

import numpy as np

from samestep.common.program import Arrays
from samestep.common.reference.optimizers import Update, adamw, sgd
from samestep.common.workload.optimizers import OptimizerSpec


def momentum_off_by_one(spec: OptimizerSpec, t: int, w: np.ndarray, g: np.ndarray, slots: Arrays) -> None:
    """Moves the weights by the velocity of the step before; the arguments are those of `Update`."""
    before = slots["momentum"].copy()
    sgd(spec, t, w.copy(), g, slots)
    w -= spec.learning_rate * before


def nesterov(spec: OptimizerSpec, t: int, w: np.ndarray, g: np.ndarray, slots: Arrays) -> None:
    """Looks ahead along the new velocity; the arguments are those of `Update`."""
    sgd(spec, t, w.copy(), g, slots)
    w -= spec.learning_rate * (g + spec.momentum * slots["momentum"])


def _decay_and_accumulate(spec: OptimizerSpec, w: np.ndarray, g: np.ndarray, slots: Arrays) -> None:
    """The part of AdamW that these updates take rightly: the decay of the weights, and both moments."""
    w -= spec.learning_rate * spec.weight_decay * w
    slots["first_moment"] *= spec.beta1
    slots["first_moment"] += (1 - spec.beta1) * g
    slots["second_moment"] *= spec.beta2
    slots["second_moment"] += (1 - spec.beta2) * g * g


def epsilon_inside(spec: OptimizerSpec, t: int, w: np.ndarray, g: np.ndarray, slots: Arrays) -> None:
    """Adds epsilon below the root; the arguments are those of `Update`."""
    _decay_and_accumulate(spec, w, g, slots)
    root = np.sqrt(slots["second_moment"] / (1 - spec.beta2**t) + spec.epsilon)
    w -= spec.learning_rate / (1 - spec.beta1**t) * slots["first_moment"] / root


def epsilon_hat(spec: OptimizerSpec, t: int, w: np.ndarray, g: np.ndarray, slots: Arrays) -> None:
    """Adds epsilon to the root that is not corrected for its bias; the arguments are those of `Update`."""
    _decay_and_accumulate(spec, w, g, slots)
    rate = spec.learning_rate * math.sqrt(1 - spec.beta2**t) / (1 - spec.beta1**t)
    w -= rate * slots["first_moment"] / (np.sqrt(slots["second_moment"]) + spec.epsilon)


def no_bias_correction(spec: OptimizerSpec, t: int, w: np.ndarray, g: np.ndarray, slots: Arrays) -> None:
    """Leaves the moments uncorrected; the arguments are those of `Update`."""
    _decay_and_accumulate(spec, w, g, slots)
    w -= spec.learning_rate * slots["first_moment"] / (np.sqrt(slots["second_moment"]) + spec.epsilon)


def coupled_decay(spec: OptimizerSpec, t: int, w: np.ndarray, g: np.ndarray, slots: Arrays) -> None:
    """Adds the weight decay to the gradient; the arguments are those of `Update`."""
    adamw(dataclasses.replace(spec, weight_decay=0.0), t, w, g + spec.weight_decay * w, slots)


def decay_without_rate(spec: OptimizerSpec, t: int, w: np.ndarray, g: np.ndarray, slots: Arrays) -> None:
    """Decays the weights without multiplying by the learning rate; the arguments are those of `Update`."""
    w *= 1 - spec.weight_decay
    adamw(dataclasses.replace(spec, weight_decay=0.0), t, w, g, slots)


SGD: Mapping[Update, str] = {
    momentum_off_by_one: "the update used the momentum of the step before: velocity and weights are updated in the wrong order",
    nesterov: "the update is Nesterov's, not plain momentum",
}
ADAMW: Mapping[Update, str] = {
    epsilon_inside: "Adam's epsilon is inside the root",
    epsilon_hat: "Adam's epsilon is added before the bias correction (epsilon-hat, as in Keras)",
    no_bias_correction: "Adam's moments are not corrected for their bias",
    coupled_decay: "the weight decay goes through the moments (L2): it is not decoupled",
    decay_without_rate: "the weight decay is not multiplied by the learning rate",
}
"""What each update means."""
