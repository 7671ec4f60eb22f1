"""What a script does to its gradients between the backward pass and the update, by the scalars of its steps: scaling, clipping.

A loss that is scaled gives scaled gradients, which a gradient scaler divides again. Then they are clipped to a norm, or to a
largest value.
"""

import math
from collections.abc import Mapping, Sequence

CLIP_NORM, CLIP_MOST, CLIP_CALLS = "clip_norm", "clip_max_norm", "clip_calls"
"""The norm before clipping, the most that it leaves, and how often gradients were clipped before the update."""
CLIP_PART = "clip_norm_part"
"""This rank's share of the norm before clipping, where each clips a shard: their squares add up to that of the norm."""
ZEROED_PASSES = "zeroed_passes"
"""The backward passes of a step whose gradients were set to zero before its update, if those of others were not."""
BACKWARD_PASSES = "backward_passes"
"""How many a step has, where its record holds the sum of their losses alone."""
KEPT_CALLS = "kept_calls"
"""The calls of a closure by the optimizer that added to the gradients of the call before, if there are any."""
LOSS_SCALE = "loss_scale"
"""The scale of the loss."""
TRANSFORMS = (CLIP_NORM, CLIP_MOST, LOSS_SCALE)
"""What a graph writes down of a step, where no Python function runs."""
CLIP_EACH, CLIP_VALUE = "clipnorm", "clip_max_value"
"""The most that clipping leaves of the norm of each tensor's gradient, and of each of its numbers."""
KERAS_NAMES = {"global_clipnorm": CLIP_MOST, "clipvalue": CLIP_VALUE}
"""The names that Keras' optimizers have for what torch is called with."""

_ADDED = 1e-6
"""What torch adds to the norm that it divides by; its calls alone are counted."""
FOLLOWING = (CLIP_NORM, CLIP_CALLS)
"""Scalars that differ wherever gradients do."""
COMPUTED = (*FOLLOWING, LOSS_SCALE, ZEROED_PASSES, KEPT_CALLS)
"""Scalars that a step computes; all others are hyper-parameters."""

GRADIENT_PHASES = ("gradient", "clipping")
"""Where gradients first differ: as they were computed, or as the update is given them."""


def scale_words(scalars: Mapping[str, float]) -> str:
    """Returns by what the loss of a step was multiplied before its backward pass, as a clause; "" if by nothing.

    Args:
        scalars: The scalars of the step.
    """
    return f", at a loss scale of {scalars[LOSS_SCALE]:.6g}" if LOSS_SCALE in scalars else ""


def factor(scalars: Mapping[str, float]) -> float:
    """Returns what the gradient of a step was multiplied by before its update; 1 if it was left as it was."""
    norm, most = scalars.get(CLIP_NORM), scalars.get(CLIP_MOST)
    if norm is None or most is None or norm <= most:
        return 1.0
    return most / (norm + (_ADDED if CLIP_CALLS in scalars else 0.0))


def clipped_ratio(one: Mapping[str, float], other: Mapping[str, float]) -> float:
    """Returns by how much the gradient of another step was multiplied, over that of one; NaN if that was multiplied by 0.

    Args:
        one: The scalars of the one step.
        other: Those of the other.
    """
    return factor(other) / factor(one) if factor(one) else math.nan


def of_all_ranks(scalars: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Returns the scalars of a step: those of the first rank that has them, and the whole norm where each has a share of it.

    Args:
        scalars: Those of each rank.
    """
    found = {name: value for each in reversed(scalars) for name, value in each.items()}
    if found.pop(CLIP_PART, None) is not None and all(CLIP_PART in each for each in scalars):
        found[CLIP_NORM] = math.hypot(*(each[CLIP_PART] for each in scalars))
    return found


def is_transformed(scalars: Mapping[str, float]) -> bool:
    """Returns whether a step may have changed the norm of its gradient."""
    return CLIP_NORM in scalars
