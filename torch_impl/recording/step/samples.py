"""A few numbers of each weight. They show that a script writes weights where torch does not count it, as through `p.data`."""

from collections.abc import Sequence

import torch

from samestep.common.steps.projections import Piece
from samestep.torch_impl.recording.followed_tensor import Held
from samestep.torch_impl.recording.pieces import is_wrapped

_NUMBERS = 8
"""The largest number of samples of a tensor, approximately; they are evenly spaced."""


class Samples:
    """Those of tensors that are whole and lie in memory without gaps.

    A GPU is not waited for until they are compared. Nothing there is kept alive meanwhile: a script may make room by moving its
    model to the host.
    """

    def __init__(self, held: Sequence[Held]) -> None:
        """Takes none yet.

        Args:
            held: The tensors.
        """
        self._tensors = [each.owner for each in held if _is_plain(each)]
        self._places, self._views = list[int](), list[list[torch.Tensor]]()

    def taken(self) -> list[torch.Tensor]:
        """Returns them, those of each device and dtype together."""
        with torch.no_grad():
            return [torch.cat(views) for views in self._seen()]

    def num_changed(self, before: Sequence[torch.Tensor]) -> int:
        """Returns how many tensors have other numbers now.

        Args:
            before: What was taken before.
        """
        if not before or len(before) != len(now := self.taken()):
            return 0
        count = 0
        for one, other, views in zip(before, now, self._seen(), strict=True):
            if _is_alike(one, other) and not torch.equal(one, other):
                parts = torch.split(one != other, [len(each) for each in views])
                count += sum(bool(each.any()) for each in parts)
        return count

    def _seen(self) -> list[list[torch.Tensor]]:
        places = [each.data_ptr() for each in self._tensors]
        if places != self._places:  # what a tensor has left may be given back, so it is not read again
            self._places, self._views = places, _views_of(self._tensors)
        views = self._views
        if not all(each.is_cpu for each in self._tensors):
            self._places, self._views = [], []
        return views


def _is_alike(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Returns whether two tensors can be compared; a script may cast its model, or move it."""
    return (one.shape, one.dtype, one.device) == (other.shape, other.dtype, other.device)


def _is_plain(held: Held) -> bool:
    owner = held.owner
    is_whole = type(owner) in (torch.Tensor, torch.nn.Parameter) and held.tensor.piece == Piece.whole(owner.shape)
    return is_whole and owner.layout is torch.strided and not owner.is_meta and not is_wrapped(owner)


def _views_of(tensors: Sequence[torch.Tensor]) -> list[list[torch.Tensor]]:
    kinds: dict[tuple[torch.device, torch.dtype], list[torch.Tensor]] = {}
    for each in tensors:
        has_gaps = not each.is_contiguous() and not each.is_contiguous(memory_format=torch.channels_last)
        if each.numel() and not has_gaps:
            step = max(1, each.numel() // _NUMBERS)
            view = each.detach().as_strided((-(-each.numel() // step),), (step,))
            kinds.setdefault((each.device, each.dtype), []).append(view)
    return [*kinds.values()]
