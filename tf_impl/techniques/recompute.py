"""Recomputation: inner segments keep their inputs only, and compute the rest once more in the backward pass.

References:
    tf.recompute_grad (TensorFlow 2.21); Chen et al., arXiv 1604.06174.
"""

import tensorflow as tf

from samestep.common.strategy import Run
from samestep.tf_impl.models.experts import Experts
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
    experts: dict[str, Experts] = getattr(model, "experts", {})

    def segments() -> dict[str, SegmentFunction]:
        return {
            name: _computed_twice(each, experts.get(name)) if name in inner else each for name, each in right().items()
        }

    model.segments = segments


def _computed_twice(segment: SegmentFunction, experts: Experts | None) -> SegmentFunction:
    """Hands on what a router noted as well: tensors of a function that is computed again leave it as its outputs only."""
    if experts is None:
        return tf.recompute_grad(segment)

    def noting(x: tf.Tensor) -> tuple[tf.Tensor, ...]:
        return segment(x), *experts.routed

    twice = tf.recompute_grad(noting)

    def run(x: tf.Tensor) -> tf.Tensor:
        y, counts, sums = twice(x)
        experts.routed = tf.stop_gradient(counts), sums  # of what counts there is none, nor an exchange of it
        return y

    return run
