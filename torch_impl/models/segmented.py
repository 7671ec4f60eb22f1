"""A model as a sequence of segments, so any part of it can run alone."""

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

import torch

from samestep.torch_impl.models.inputs import Inputs

SegmentFunction = Callable[..., torch.Tensor]
"""Takes the inputs or what the segment before returned."""


class Segmented(Protocol):
    """A model whose forward pass is a sequence of segments; every model here is one."""

    def segments(self) -> dict[str, SegmentFunction]:
        """Its segments in order, named as in the spec; run one after the other they are its forward pass."""


def run_segments(segments: Iterable[SegmentFunction], x: Inputs) -> torch.Tensor:
    """Runs one segment after the other.

    Args:
        segments: The segments, in order.
        x: The input of the first segment.
    """
    for segment in segments:
        x = segment(**x) if isinstance(x, Mapping) else segment(x)
    return x
