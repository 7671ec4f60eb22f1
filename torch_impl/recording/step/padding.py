"""Finds the padding of texts in the inputs of a call, which is not data, and packed batches, which have no padding."""

from collections.abc import Mapping, Sequence

import torch

from samestep.common.steps.argument_names import padding_named
from samestep.torch_impl.recording.pieces import local_of, unwrapped


def leading_of(inputs: Sequence[torch.Tensor]) -> torch.Tensor:
    """Returns the tensor with the rows of a batch: the only row of a packed batch, where 1-D tensors say where texts begin.

    Args:
        inputs: The tensors of a call that has only keyword arguments.
    """
    rows = [each for each in inputs if each.ndim > 1]
    is_packed = bool(rows) and all(each.shape[0] == 1 != len(inputs[0]) for each in rows)
    return rows[0] if is_packed else inputs[0]


def padding_of(arguments: Sequence[object], keywords: Mapping[str, object]) -> tuple[torch.Tensor | None, object]:
    """Returns what the mask of a call shows, and its positions; each is None if it is missing.

    Args:
        arguments: The positional arguments of the module; a mapping among them may name its parts.
        keywords: The keyword arguments of the module.
    """
    masks, places = padding_named(arguments, keywords)
    usable = (each for each in masks if isinstance(each, torch.Tensor) and each.layout is torch.strided)
    mask = next((each for each in usable if each.ndim == 2 and each.numel()), None)
    return (None if mask is None else local_of(unwrapped(mask)) != 0), places


def without_padding(tensor: torch.Tensor, shown: torch.Tensor, are_positions: bool) -> torch.Tensor:
    """Returns an input with zeros where it is padded, i.e. hidden by the mask and equal to the hidden end of its row.

    All other numbers count, since a mask may have another meaning, such as true for hidden. Padding in front of a row is moved
    behind it, so the hash of the row does not depend on the amount of padding.

    Args:
        tensor: The input.
        shown: Where the mask does not hide the input.
        are_positions: Whether the numbers are the positions in a row, which continue after the shown part.
    """
    is_alike = tensor.shape == shown.shape and tensor.device == shown.device and tensor.layout is torch.strided
    if not is_alike or tensor.is_floating_point():
        return tensor
    is_in_front, is_padding = shown[:, -1:], ~shown
    if not are_positions:
        is_padding &= tensor == tensor[:, :1].where(is_in_front, tensor[:, -1:])
    before = is_padding.cumprod(1).sum(1, keepdim=True) * is_in_front
    places = torch.arange(tensor.shape[1], device=tensor.device) + before
    return tensor.masked_fill(is_padding, 0).gather(1, places % tensor.shape[1])
