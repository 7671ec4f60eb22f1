"""Clipping as a technique."""

from samestep.common.program import Arrays
from samestep.common.techniques import Techniques
from samestep.common.techniques.clip_norm.flag import ClipFlags
from samestep.common.techniques.clip_norm.statement import clip
from samestep.common.techniques.technique import Technique


def transform(gradients: Arrays, techniques: Techniques) -> Arrays:
    """Clips the gradient of the whole batch, as `statement.clip` does.

    Args:
        gradients: The gradients of every parameter.
        techniques: The techniques of the run.
    """
    assert techniques.clip_norm is not None
    return clip(gradients, techniques.clip_norm)


CLIP_NORM = Technique(flags=ClipFlags, transform=transform)
