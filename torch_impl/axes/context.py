"""The axis `context`: every device has the whole model, and of each example some of the positions.

All but attention treats positions one by one. Attention exchanges: each rank hands over its positions of all heads and gets
all positions of its own heads, computes attention as one device does, and hands the outputs back (Ulysses). No number is added
up in another order than on one device.

Shape suffixes: B batch, T tokens, t tokens of a rank, H heads, h heads of a rank, K width of a head, N ranks.

References:
    Jacobs et al., arXiv 2309.14509 (DeepSpeed-Ulysses).
"""

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed._functional_collectives import all_to_all_single_autograd

from samestep.common.batch import WHOLE
from samestep.common.strategy import Run
from samestep.torch_impl.devices import own_part
from samestep.torch_impl.models import place_positions
from samestep.torch_impl.models.inputs import Inputs
from samestep.torch_impl.models.transformer import Attention, causal_attention


class HeadExchange:
    """Attention on all positions of some heads, of what lies in parts by positions."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        self._group, self._ranks = group, group.size()

    def __call__(self, q_BHtK: torch.Tensor, k_BHtK: torch.Tensor, v_BHtK: torch.Tensor) -> torch.Tensor:
        """Mixes values: [B, H, t, K] each -> [B, H, t, K].

        Args:
            q_BHtK: Queries.
            k_BHtK: Keys.
            v_BHtK: Values.
        """
        count = self._ranks
        # Queries, keys and values go together; what goes to one rank is contiguous.
        parts = torch.stack((q_BHtK, k_BHtK, v_BHtK)).unflatten(2, (count, -1))
        sent_N3BhtK = parts.movedim(2, 0)
        received_N3BhtK = self._exchange(sent_N3BhtK)
        q_BhTK, k_BhTK, v_BhTK = received_N3BhtK.movedim(0, 3).flatten(3, 4)
        mixed_BhTK = causal_attention(q_BhTK, k_BhTK, v_BhTK)
        sent_NBthK = mixed_BhTK.unflatten(2, (count, -1)).movedim(2, 0).transpose(2, 3)
        received_NBthK = self._exchange(sent_NBthK)
        return received_NBthK.movedim(0, 2).flatten(2, 3).transpose(1, 2)

    def _exchange(self, parts: torch.Tensor) -> torch.Tensor:
        """[N, ...], one part for each rank -> [N, ...], one from each rank."""
        return all_to_all_single_autograd(parts.contiguous(), None, None, self._group).view(parts.shape)


def exchange_heads(model: nn.Module, group: dist.ProcessGroup) -> None:
    """Has every attention of a model exchange positions for heads, in place.

    Args:
        model: The model, which is given some of the positions.
        group: The ranks that have the others.
    """
    for module in model.modules():
        if isinstance(module, Attention):
            module.attend = HeadExchange(group)


def predictor(run: Run, model: nn.Module) -> Callable[[Inputs], torch.Tensor]:
    """Makes what computes logits of whole examples, as each rank evaluates them.

    Args:
        run: What is trained.
        model: The model, as `exchange_heads` has left it.
    """
    attentions = [module for module in model.modules() if isinstance(module, Attention)]

    def predict(x: Inputs) -> torch.Tensor:
        kept = [attention.attend for attention in attentions]
        place_positions(model, WHOLE.positions)
        for attention in attentions:
            attention.attend = causal_attention
        logits = model(x)
        for attention, attend in zip(attentions, kept, strict=True):
            attention.attend = attend
        place_positions(model, own_part(run).positions)
        return logits

    return predict
