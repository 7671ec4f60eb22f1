"""Recomputation: inner segments keep their inputs only, and compute the rest once more in the backward pass.

References:
    tf.recompute_grad (TensorFlow 2.21); Chen et al., arXiv 1604.06174.
"""

from collections.abc import Mapping

import tensorflow as tf

from samestep.common.strategy import Run
from samestep.tf_impl.models.segmented import Noting, Segmented, SegmentFunction


def recompute(run: Run, model: Segmented) -> None:
    """Changes a model in place so its inner segments are recomputed, if the run asks for it.

    Args:
        run: What is trained.
        model: One of our own models.
    """
    if not run.techniques.recompute:
        return
    inner, right = {segment.name for segment in run.workload.model.segments()[1:-1]}, model.segments
    noting: Mapping[str, Noting] = getattr(model, "noting", {})

    def segments() -> dict[str, SegmentFunction]:
        return {
            name: _computed_twice(each, noting.get(name)) if name in inner else each for name, each in right().items()
        }

    model.segments = segments


def _computed_twice(segment: SegmentFunction, part: Noting | None) -> SegmentFunction:
    """Makes a segment recompute, and hands on what a part of it notes, since only outputs leave what is recomputed."""
    if part is None:
        return tf.recompute_grad(segment)

    def with_notes(x: tf.Tensor) -> tuple[tf.Tensor, ...]:
        return segment(x), *part.noted

    twice = tf.recompute_grad(with_notes)

    def run(x: tf.Tensor) -> tf.Tensor:
        y, *part.noted = twice(x)
        return y

    return run
