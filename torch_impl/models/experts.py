"""A mixture of experts: a router sends each token to some of the MLPs of its block.

Shape suffixes: N tokens, D width, E experts, k experts of a token, S = N k slots, each a token and an
expert that it is sent to.
"""

from collections.abc import Callable, Sequence

import torch
from torch import nn
from torch.nn import functional

from samestep.common.features.experts.balance import balance_of
from samestep.common.workload.models.transformer import TransformerSpec
from samestep.torch_impl.features.applied import behind
from samestep.torch_impl.models.layers import ACTIVATIONS
from samestep.torch_impl.sharded import local_part
from samestep.torch_impl.step_context import StepContext


class Stacked(nn.Module):
    """Several linear layers in one module, each for some of the rows.

    Attributes:
        sum_parts: Sums the outputs over the ranks that have parts of each layer's inputs; None if this rank has all inputs.
    """

    def __init__(self, count: int, fan_in: int, fan_out: int, bias: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(count, fan_in, fan_out))
        self.register_parameter("bias", nn.Parameter(torch.empty(count, fan_out)) if bias else None)
        self.sum_parts: Callable[[torch.Tensor], torch.Tensor] | None = None

    def forward(self, x: torch.Tensor, counts: Sequence[int]) -> torch.Tensor:
        """Applies each layer to its rows, [rows, in] -> [rows, out].

        Args:
            x: The rows of the first layer, then those of the second, and so on.
            counts: The number of rows of each layer.
        """
        weights, parts = local_part(self.weight).unbind(), x.split(list(counts))
        if self.bias is None or self.sum_parts:
            y = torch.cat([rows @ weight for rows, weight in zip(parts, weights, strict=True)])
            return self._shift(self.sum_parts(y), counts) if self.sum_parts else y
        each = zip(parts, weights, local_part(self.bias).unbind(), strict=True)
        return torch.cat([torch.addmm(bias, rows, weight) for rows, weight, bias in each])

    def _shift(self, y: torch.Tensor, counts: Sequence[int]) -> torch.Tensor:
        """Adds the bias of each layer to its rows."""
        if self.bias is None:
            return y
        parts = zip(y.split(list(counts)), local_part(self.bias).unbind(), strict=True)
        return torch.cat([rows + bias for rows, bias in parts])


class Experts(nn.Module):
    """The sum over the k likeliest experts of each token, weighted by their normalized probabilities."""

    def __init__(self, spec: TransformerSpec, block: int, context: StepContext) -> None:
        super().__init__()
        self.behind = behind(spec, 2 * block + 2, context)
        self.router = nn.Linear(spec.width, spec.experts, bias=False)
        self.activate, has_biases = ACTIVATIONS[spec.activation], not spec.is_llama
        self.up = Stacked(spec.experts, spec.width, spec.hidden, has_biases)
        self.gate = Stacked(spec.experts, spec.width, spec.hidden, has_biases) if spec.is_llama else None
        self.down = Stacked(spec.experts, spec.hidden, spec.width, has_biases)
        self.top_k, self.count, self.is_balanced = spec.top_k, spec.experts, balance_of(spec) > 0
        self.context, self.block = context, block

    def forward(self, x_BTD: torch.Tensor) -> torch.Tensor:
        """Computes [B, T, D] -> [B, T, D]; in training, it also records the terms of the load-balancing loss."""
        if x_BTD.is_meta:  # a pipeline determines shapes
            return x_BTD
        x_ND = x_BTD.flatten(0, 1)
        probabilities_NE = self.router(x_ND).softmax(-1)
        # Among equally likely experts, the first are chosen, as in the other mirrors; `topk` chooses any (2.13).
        likeliest_NE = probabilities_NE.detach().argsort(descending=True, stable=True)
        chosen_Nk = likeliest_NE[:, : self.top_k].contiguous()
        top_Nk = probabilities_NE.gather(1, chosen_Nk)
        weights_Nk = top_Nk / top_Nk.sum(-1, keepdim=True)
        counts_E = chosen_Nk.flatten().bincount(minlength=self.count)
        if self.is_balanced and self.context.routed is not None:
            self.context.routed.append((counts_E, probabilities_NE.sum(0)))
        order_S = chosen_Nk.flatten().argsort(stable=True)  # by expert, then by token
        out_SD = self.compute(x_ND.index_select(0, order_S // self.top_k), counts_E)
        out_NkD = out_SD.index_select(0, order_S.argsort()).unflatten(0, (-1, self.top_k))
        return self.behind((weights_Nk.unsqueeze(1) @ out_NkD).view(x_BTD.shape))

    def compute(self, x_SD: torch.Tensor, counts_E: torch.Tensor) -> torch.Tensor:
        """Returns the outputs of the experts, [S, D] -> [S, D].

        Args:
            x_SD: The tokens of the first expert, then those of the second, and so on.
            counts_E: The number of tokens of each expert.
        """
        counts = counts_E.tolist()
        inner = self.up(x_SD, counts)
        if self.gate is None:
            return self.down(self.activate(inner), counts)
        return self.down(functional.silu(self.gate(x_SD, counts)) * inner, counts)


def divide(model: nn.Module) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """Returns the parameters of a model, or of a rank's part of it, that belong to no expert, and those of experts."""
    stacked = [each for module in model.modules() if isinstance(module, Stacked) for each in module.parameters()]
    own = set(stacked)
    return [each for each in model.parameters() if each not in own], stacked
