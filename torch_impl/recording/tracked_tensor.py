"""What the recorder keeps of a tensor of the script."""

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
        tensor: What the record says of it.
        owner: The parameter that an optimizer holds.
        value: Reads the piece of this process.
        gradient: Reads the piece of its gradient; None if there is none.
        copies: Other tensors that hold the same numbers, which change with an update only.
        is_updated: Whether an optimizer holds it, or there is no optimizer.
    """

    tensor: RecordedTensor
    owner: torch.Tensor
    value: Callable[[], torch.Tensor]
    gradient: Callable[[], torch.Tensor | None]
    copies: tuple[Copy, ...] = ()
    is_updated: bool = True


def nothing() -> Any:
    """Reads the gradient of a tensor that is not looked at, and the weights of one that the script has deleted."""
