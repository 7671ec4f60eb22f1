"""The MLP: linear layers with activations between them."""

import functools

import torch
from torch import nn

from samestep.common.workload.models.mlp import MlpSpec
from samestep.torch_impl.features.applied import behind, linear
from samestep.torch_impl.models.layers import ACTIVATIONS
from samestep.torch_impl.models.segmented import SegmentFunction, run_segments
from samestep.torch_impl.step_context import StepContext


class Mlp(nn.Module):
    """The multilayer perceptron, [batch, ...] -> [batch, outputs]."""

    def __init__(self, spec: MlpSpec, context: StepContext) -> None:
        super().__init__()
        self.activate = ACTIVATIONS[spec.activation]
        sizes = [spec.features, *[spec.width] * (spec.layers - 1), spec.outputs]
        hidden = range(spec.layers - 1)
        inner = [linear(spec.norm, sizes[i], sizes[i + 1]) for i in hidden]
        self.layers = nn.ModuleList([*inner, nn.Linear(sizes[-2], sizes[-1])])
        self.behind = nn.ModuleList(behind(spec, i, context, f"layers/{i}") for i in hidden)

    def segments(self) -> dict[str, SegmentFunction]:
        """Returns one segment per layer."""
        pairs = enumerate(zip(self.layers, self.behind, strict=False))
        inner = {f"layers/{i}": functools.partial(self._hidden, *pair) for i, pair in pairs}
        return inner | {f"layers/{len(inner)}": self._last}

    def _hidden(self, layer: nn.Module, behind: nn.Module, x: torch.Tensor) -> torch.Tensor:
        x = self.activate(layer(x.flatten(1)))
        return x if isinstance(behind, nn.Identity) else behind(x)  # a call of a module takes a microsecond

    def _last(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers[-1](x.flatten(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Runs all segments in order."""
        return run_segments(self.segments().values(), x)
