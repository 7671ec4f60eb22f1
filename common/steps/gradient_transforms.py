"""What a script does to its gradients between the backward pass and the update, as scalars of its steps: scaling, clipping.

A loss that is scaled gives scaled gradients, which a gradient scaler divides again. Then they are clipped to a norm, or to a
largest value.
"""

import math
from collections.abc import Mapping, Sequence

CLIP_NORM, CLIP_MOST, CLIP_CALLS = "clip_norm", "clip_max_norm", "clip_calls"
"""The norm before clipping, the bound of clipping, and how often gradients were clipped before the update."""
CLIP_PART = "clip_norm_part"
"""This rank's share of the norm before clipping, if each rank clips a shard; the squares add up to that of the norm."""
ZEROED_PASSES = "zeroed_passes"
"""How many backward passes of a step had their gradients set to zero before its update, if those of others did not."""
BACKWARD_PASSES = "backward_passes"
"""How many backward passes a step has, if its record holds only the sum of their losses."""
KEPT_CALLS = "kept_calls"
"""How often the optimizer called a closure that added to the gradients of the call before, if it did."""
LOSS_SCALE = "loss_scale"
"""The scale of the loss."""
GRADIENT_ROWS = "gradient_rows"
"""Of how many tensors TensorFlow gave the optimizer the gradient as rows, one for each look-up, if of any."""
EPSILON_BEFORE = "eps_before_correction"
"""1 where Adam adds epsilon before its bias is corrected, as Keras' does: a hyper-parameter that only such an optimizer has."""
TRANSFORMS = (CLIP_NORM, CLIP_MOST, LOSS_SCALE)
"""The scalars that a graph records of a step, where no Python function runs."""
CLIP_EACH, CLIP_VALUE = "clipnorm", "clip_max_value"
"""The bounds of clipping each tensor's gradient by its norm, and each of its numbers."""
KERAS_NAMES = {"global_clipnorm": CLIP_MOST, "clipvalue": CLIP_VALUE}
"""Keras' names for the bounds that torch's functions are called with."""

_ADDED = 1e-6
"""What torch adds to the norm that it divides by; only torch's calls are counted."""
FOLLOWING = (CLIP_NORM, CLIP_CALLS)
"""The scalars that differ whenever gradients do."""
COMPUTED = (*FOLLOWING, LOSS_SCALE, GRADIENT_ROWS, ZEROED_PASSES, KEPT_CALLS)
"""The scalars that a step computes; all others are hyper-parameters."""

GRADIENT_PHASES = ("gradient", "clipping")
"""The phases in which gradients may first differ: as they were computed, or as the update gets them."""


def scale_words(scalars: Mapping[str, float]) -> str:
    """Returns the scale of the loss in the backward pass of a step, as a clause; "" if it was not scaled.

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
    """Returns the factor of the gradient in another step over the factor in one step; NaN if the latter is 0.

    Args:
        one: The scalars of the one step.
        other: Those of the other.
    """
    return factor(other) / factor(one) if factor(one) else math.nan


def of_all_ranks(scalars: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Returns the scalars of a step: those of the first rank that has them, and the whole norm if each rank has a share of it.

    Args:
        scalars: The scalars of each rank.
    """
    found = {name: value for each in reversed(scalars) for name, value in each.items()}
    if found.pop(CLIP_PART, None) is not None and all(CLIP_PART in each for each in scalars):
        found[CLIP_NORM] = math.hypot(*(each[CLIP_PART] for each in scalars))
    return found


def is_transformed(scalars: Mapping[str, float]) -> bool:
    """Returns whether a step may have changed the norm of its gradient."""
    return CLIP_NORM in scalars
