"""Recomputation: inner segments keep their inputs only, and compute the rest once more in the backward pass.

References:
    tf.recompute_grad (TensorFlow 2.21); Chen et al., arXiv 1604.06174.
"""

import tensorflow as tf

from samestep.common.strategy import Run
from samestep.tf_impl.models.segmented import Segmented, SegmentFunction


def recompute(run: Run, model: Segmented) -> None:
    """Has the inner segments of a model recomputed if the run asks for it, in place.

    Args:
        run: What is trained.
        model: One of our own models.
    """
    if not run.techniques.recompute:
        return
    inner, right = {segment.name for segment in run.workload.model.segments()[1:-1]}, model.segments

    def segments() -> dict[str, SegmentFunction]:
        return {name: tf.recompute_grad(each) if name in inner else each for name, each in right().items()}

    model.segments = segments
