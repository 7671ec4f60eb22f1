"""A model as a sequence of segments, so any part of it can run alone."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

import torch
from torch import nn

from samestep.torch_impl.models.inputs import Inputs

Handed = torch.Tensor | tuple[torch.Tensor, ...]
"""What a segment of a user model returns: one tensor or several, such as an activation and a skip connection."""
SegmentFunction = Callable[..., Any]
"""Takes the inputs or what the previous segment returned; a user's segment may return several tensors, as `Handed`."""


class Segmented(Protocol):
    """A model whose forward pass is a sequence of segments; every model here is one."""

    def segments(self) -> dict[str, SegmentFunction]:
        """Returns the segments in order, named as in the spec; run one after the other, they are the forward pass."""


def run_segments(segments: Iterable[SegmentFunction], x: Inputs | Handed) -> Any:
    """Runs one segment after the other, and returns the result of the last.

    Args:
        segments: The segments, in order.
        x: The input of the first segment.
    """
    for segment in segments:
        x = segment(**x) if isinstance(x, Mapping) else segment(x)
    return x


def tensors_of(handed: Inputs | Handed) -> tuple[Any, ...]:
    """Returns the tensors that a segment returned, in order."""
    return handed if isinstance(handed, tuple) else (handed,)


def remove(model: nn.Module, path: str) -> None:
    """Removes a module or a single parameter from a model; everything else keeps its path.

    Args:
        model: The model, changed in place.
        path: The path of the module or parameter in torch's spelling.
    """
    owner, _, name = path.rpartition(".")
    if name in dict(model.get_submodule(owner).named_parameters(recurse=False)):
        model.get_submodule(owner).register_parameter(name, None)
    else:
        model.set_submodule(path, nn.Identity())
