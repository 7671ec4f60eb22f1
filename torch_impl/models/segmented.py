"""A model as a sequence of segments, so any part of it can run alone."""

from collections.abc import Callable, Iterable
from typing import Protocol

import torch

SegmentFunction = Callable[[torch.Tensor], torch.Tensor]


class Segmented(Protocol):
    """What every model here is."""

    def segments(self) -> dict[str, SegmentFunction]:
        """Its segments in order, named as in the spec; run one after the other they are its forward pass."""


def run_segments(segments: Iterable[SegmentFunction], x: torch.Tensor) -> torch.Tensor:
    """Runs one segment after the other.

    Args:
        segments: In order.
        x: What the first one takes.
    """
    for segment in segments:
        x = segment(x)
    return x
