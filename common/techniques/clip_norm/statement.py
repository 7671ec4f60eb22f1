"""Clipping, stated once: the whole gradient is scaled down to the bound if its norm is larger."""

import math

from samestep.common.program import Arrays


def clip(gradients: Arrays, bound: float) -> Arrays:
    """Scales gradients down, so the whole gradient has at most a given norm.

    Args:
        gradients: The gradients of every parameter.
        bound: The largest norm allowed.
    """
    norm = math.sqrt(sum(float((g * g).sum()) for g in gradients.values()))
    scale = min(1.0, bound / norm) if norm else 1.0
    return {name: g * scale for name, g in gradients.items()}
