"""A model as a sequence of segments, which a technique may wrap."""

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import tensorflow as tf

SegmentFunction = Callable[[tf.Tensor], tf.Tensor]
"""A segment, which takes the inputs or what the previous segment returned."""


class Noting(Protocol):
    """A part of a segment that keeps, for the loss, tensors in addition to its output.

    Attributes:
        noted: The tensors of the last call.
    """

    noted: Sequence[tf.Tensor]


class Segmented(Protocol):
    """A model whose forward pass is a sequence of segments; every model here is one."""

    def segments(self) -> dict[str, SegmentFunction]:
        """Returns its segments in order, named as in the spec; run one after another, they are its forward pass."""


def run_segments(segments: Iterable[SegmentFunction], x: tf.Tensor) -> tf.Tensor:
    """Runs one segment after the other.

    Args:
        segments: The segments, in order.
        x: The input of the first segment.
    """
    for segment in segments:
        x = segment(x)
    return x
