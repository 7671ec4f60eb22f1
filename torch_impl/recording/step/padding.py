"""What of the inputs of a call is no data: the padding of texts. And which of them is a packed batch, which has none."""

from collections.abc import Sequence

import torch

from samestep.torch_impl.recording.pieces import local_of, unwrapped


def leading_of(inputs: Sequence[torch.Tensor]) -> torch.Tensor:
    """Returns the row of a packed batch, which says in tensors of one dimension where its texts begin; of others, the first.

    Args:
        inputs: The tensors of a call whose arguments are all keywords.
    """
    rows = [each for each in inputs if each.ndim > 1]
    is_packed = bool(rows) and all(each.shape[0] == 1 != len(inputs[0]) for each in rows)
    return rows[0] if is_packed else inputs[0]


def shown_by(mask: object) -> torch.Tensor | None:
    """Returns what an attention mask does not hide; None if it is of another kind than one number for each place of a row.

    Args:
        mask: The mask of a call.
    """
    if not isinstance(mask, torch.Tensor) or mask.layout is not torch.strided or mask.ndim != 2 or not mask.numel():
        return None
    return local_of(unwrapped(mask)) != 0


def without_padding(tensor: torch.Tensor, shown: torch.Tensor, are_positions: bool = False) -> torch.Tensor:
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
