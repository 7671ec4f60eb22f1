"""What a script does to its gradients between the backward pass and the update, as scalars of a step: scaling, clipping.

A scaled loss gives scaled gradients, which a gradient scaler divides again. Then they may be clipped to a norm, or each number to
a largest value.
"""

import math
from collections.abc import Mapping, Sequence

CLIP_NORM, CLIP_MOST, CLIP_CALLS = "clip_norm", "clip_max_norm", "clip_calls"
"""The norm before clipping, the bound, and the number of calls that clipped gradients before the update."""
CLIP_PART = "clip_norm_part"
"""This rank's share of the norm before clipping, if each rank clips a shard; the squares add up to that of the norm."""
ZEROED_PASSES = "zeroed_passes"
"""The number of backward passes in a step whose gradients were set to zero before the update, if those of others were not."""
BACKWARD_PASSES = "backward_passes"
"""The number of backward passes in a step, if its record holds only the sum of their losses."""
KEPT_CALLS = "kept_calls"
"""How often the optimizer called a closure that added to the gradients of its previous call, if it did."""
LOSS_SCALE = "loss_scale"
"""The factor by which the loss was scaled."""
GRADIENT_ROWS = "gradient_rows"
"""The number of tensors whose gradient TensorFlow gave the optimizer as rows, one for each look-up, if there are any."""
EPSILON_BEFORE = "eps_before_correction"
"""1 if Adam adds epsilon before the bias correction, as Keras' does; only such an optimizer has this hyper-parameter."""
TRANSFORMS = (CLIP_NORM, CLIP_MOST, LOSS_SCALE)
"""The scalars that a graph records of a step, in which no Python function runs."""
CLIP_EACH, CLIP_VALUE = "clipnorm", "clip_max_value"
"""The bounds of clipping by norm each tensor's gradient, and of clipping each of its numbers."""
KERAS_NAMES = {"global_clipnorm": CLIP_MOST, "clipvalue": CLIP_VALUE}
"""Keras' names for the bounds that are arguments of torch's functions."""

_ADDED = 1e-6
"""The number that torch adds to the norm before it divides by it; only calls of torch are counted in CLIP_CALLS."""
FOLLOWING = (CLIP_NORM, CLIP_CALLS)
"""The scalars that differ whenever gradients do."""
COMPUTED = (*FOLLOWING, LOSS_SCALE, GRADIENT_ROWS, ZEROED_PASSES, KEPT_CALLS)
"""The scalars that a step computes; all others are hyper-parameters."""

GRADIENT_PHASES = ("gradient", "clipping")
"""The phases in which gradients may first differ: as they were computed, or as the update receives them."""


def scale_words(scalars: Mapping[str, float]) -> str:
    """Returns a clause on the scale of the loss in the backward pass of a step; "" if the loss was not scaled.

    Args:
        scalars: The scalars of the step.
    """
    return f", at a loss scale of {scalars[LOSS_SCALE]:.6g}" if LOSS_SCALE in scalars else ""


def factor(scalars: Mapping[str, float]) -> float:
    """Returns the factor by which the gradient of a step was multiplied before its update; 1 if it was not changed."""
    norm, most = scalars.get(CLIP_NORM), scalars.get(CLIP_MOST)
    if norm is None or most is None or norm <= most:
        return 1.0
    return most / (norm + (_ADDED if CLIP_CALLS in scalars else 0.0))


def clipped_ratio(one: Mapping[str, float], other: Mapping[str, float]) -> float:
    """Returns the factor of another step's gradient over the factor of one step's gradient; NaN if the latter is 0.

    Args:
        one: The scalars of one step.
        other: The scalars of the other step.
    """
    return factor(other) / factor(one) if factor(one) else math.nan


def of_all_ranks(scalars: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Returns the scalars of a step: each from the first rank that has it, and the whole norm if each rank has a share of it.

    Args:
        scalars: The scalars of each rank.
    """
    found = {name: value for each in reversed(scalars) for name, value in each.items()}
    if found.pop(CLIP_PART, None) is not None and all(CLIP_PART in each for each in scalars):
        found[CLIP_NORM] = math.hypot(*(each[CLIP_PART] for each in scalars))
    return found
