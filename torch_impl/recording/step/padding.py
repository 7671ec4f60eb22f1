"""Finds the padding of texts in the inputs of a call, which is no data, and packed batches, which have no padding."""

from collections.abc import Mapping, Sequence

import torch

from samestep.common.steps.argument_names import padding_named
from samestep.torch_impl.recording.pieces import local_of, unwrapped


def leading_of(inputs: Sequence[torch.Tensor]) -> torch.Tensor:
    """Returns the row of a packed batch, which says in tensors of one dimension where its texts begin; of others, the first.

    Args:
        inputs: The tensors of a call whose arguments are all keywords.
    """
    rows = [each for each in inputs if each.ndim > 1]
    is_packed = bool(rows) and all(each.shape[0] == 1 != len(inputs[0]) for each in rows)
    return rows[0] if is_packed else inputs[0]


def padding_of(arguments: Sequence[object], keywords: Mapping[str, object]) -> tuple[torch.Tensor | None, object]:
    """Returns what the mask of a call does not hide, and its positions; None for either that is missing.

    Args:
        arguments: The arguments of the module, of which a mapping may name its parts.
        keywords: The keywords of the module.
    """
    masks, places = padding_named(arguments, keywords)
    usable = (each for each in masks if isinstance(each, torch.Tensor) and each.layout is torch.strided)
    mask = next((each for each in usable if each.ndim == 2 and each.numel()), None)
    return (None if mask is None else local_of(unwrapped(mask)) != 0), places


def without_padding(tensor: torch.Tensor, shown: torch.Tensor, are_positions: bool) -> torch.Tensor:
    """Returns an input with zeros where it is padded: where it is hidden, and as the hidden end of its row is.

    No other number is left out, since a script's mask may mean something else, as one that is true where it hides. Padding in
    front of a row goes behind it, so the row is hashed alike however long it is.

    Args:
        tensor: The input.
        shown: What its mask does not hide.
        are_positions: Whether the numbers count the places of a row, which go on behind what is shown.
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
