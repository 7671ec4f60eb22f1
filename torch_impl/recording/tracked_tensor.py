"""What the recorder keeps about a tensor of the script."""

import dataclasses
from collections.abc import Callable
from typing import Any

import torch

from samestep.common.steps.record import RecordedTensor
from samestep.torch_impl.recording.partitions import Copy


@dataclasses.dataclass(frozen=True, eq=False)
class TrackedTensor:
    """A tensor of the script.

    Attributes:
        tensor: The description of the tensor in the record.
        owner: The parameter that an optimizer holds.
        value: Reads the piece of the tensor that this process holds.
        gradient: Reads the same piece of the gradient; returns None if there is none.
        copies: Other tensors that hold the same numbers, and change only with an update.
        is_updated: Whether an optimizer holds the tensor, or there is no optimizer.
    """

    tensor: RecordedTensor
    owner: torch.Tensor
    value: Callable[[], torch.Tensor]
    gradient: Callable[[], torch.Tensor | None]
    copies: tuple[Copy, ...] = ()
    is_updated: bool = True


def nothing() -> Any:
    """Returns None, in place of a gradient that is not looked at, or of a weight that the script has deleted."""
