"""The axis `context`: every device has the whole model, and some of the positions of each example.

All layers except attention treat each position separately. Attention exchanges positions for heads (DeepSpeed-Ulysses): each rank
sends its positions of all heads, gets all positions of its own heads, computes attention as one device does, and sends the
outputs back. So sums are taken in the same order as on one device. Alternatively, keys and values are sent to the queries
(`key_exchange.py`).

Shape suffixes: B batch, T tokens, t tokens of a rank, H heads, h heads of a rank, K width of a head, N ranks.

References:
    Jacobs et al., arXiv 2309.14509 (DeepSpeed-Ulysses).
"""

import functools
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed._functional_collectives import all_to_all_single_autograd
from torch.distributed.device_mesh import DeviceMesh

from samestep.common.batch import Chunk
from samestep.common.mesh import GATHER, RING
from samestep.common.strategy import Run
from samestep.torch_impl.axes.key_exchange import Gather, Ring, attend_in_blocks
from samestep.torch_impl.devices import own_part
from samestep.torch_impl.features.applied import in_parts
from samestep.torch_impl.models.transformer import Attention, Embedding, causal_attention
from samestep.torch_impl.rows.options import ContextOptions

Attend = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
"""Queries, keys and values [B, H, t, K] -> mixed values [B, H, t, K]."""


class HeadExchange:
    """Attention for inputs split by positions; each rank computes all positions of some heads."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        """Stores the group of ranks that hold the other positions."""
        self._group, self._ranks = group, group.size()

    def __call__(self, q_BHtK: torch.Tensor, k_BHtK: torch.Tensor, v_BHtK: torch.Tensor) -> torch.Tensor:
        """Returns the mixed values of this rank's positions, [B, H, t, K].

        Args:
            q_BHtK: Queries of this rank's positions.
            k_BHtK: Their keys.
            v_BHtK: Their values.
        """
        count = self._ranks
        # Queries, keys and values are sent together; the part for each rank is contiguous.
        parts = torch.stack((q_BHtK, k_BHtK, v_BHtK)).unflatten(2, (count, -1))
        sent_N3BhtK = parts.movedim(2, 0)
        received_N3BhtK = self._exchange(sent_N3BhtK)
        q_BhTK, k_BhTK, v_BhTK = received_N3BhtK.movedim(0, 3).flatten(3, 4)
        mixed_BhTK = causal_attention(q_BhTK, k_BhTK, v_BhTK)
        sent_NBthK = mixed_BhTK.unflatten(2, (count, -1)).movedim(2, 0).transpose(2, 3)
        received_NBthK = self._exchange(sent_NBthK)
        return received_NBthK.movedim(0, 2).flatten(2, 3).transpose(1, 2)

    def _exchange(self, parts: torch.Tensor) -> torch.Tensor:
        """Sends one part to each rank and returns one part from each rank, [N, ...] -> [N, ...]."""
        return all_to_all_single_autograd(parts.contiguous(), None, None, self._group).view(parts.shape)


def place_positions(model: nn.Module, part: Chunk) -> None:
    """Tells a model which positions of the examples it is given.

    Args:
        model: The model, or a stage of it.
        part: Which part of the positions it is given.
    """
    for module in model.modules():
        if isinstance(module, Embedding | Attention):
            module.part = part
    for each in in_parts(model):
        each.place(1, part)


def attend_parts(
    attend: Attend, whole: int, q_BHtK: torch.Tensor, k_BHtK: torch.Tensor, v_BHtK: torch.Tensor
) -> torch.Tensor:
    """Returns mixed values, [B, H, t, K]; whole examples, as in evaluation, need no exchange.

    Args:
        attend: Computes attention when positions are split.
        whole: The number of positions of an example.
        q_BHtK: Queries.
        k_BHtK: Keys.
        v_BHtK: Values.
    """
    return (causal_attention if q_BHtK.shape[2] == whole else attend)(q_BHtK, k_BHtK, v_BHtK)


def exchange_positions(run: Run[ContextOptions], model: nn.Module, mesh: DeviceMesh) -> None:
    """Makes a model or a stage take some of the positions, and every attention exchange what the run asks for, in place.

    Args:
        run: The run; with one rank along `context`, nothing changes.
        model: The model, or the part that other axes left to this rank.
        mesh: All ranks.
    """
    if run.mesh.axis("context") == 1:
        return
    part = own_part(run).positions
    place_positions(model, part)
    group, (whole,) = mesh["context"].get_group(), run.workload.model.inputs().shape
    by_keys = {GATHER: Gather, RING: Ring}.get(run.options.attention_exchange)
    attend = functools.partial(attend_in_blocks, by_keys(group), part.index) if by_keys else HeadExchange(group)
    for module in model.modules():
        if isinstance(module, Attention):
            module.attend = functools.partial(attend_parts, attend, whole)
