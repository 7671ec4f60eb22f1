"""The MLP: linear layers with GELU between them."""

import functools

import torch
from torch import nn

from samestep.common.workload.models.mlp import MlpSpec
from samestep.torch_impl.models.batch_norm import linear
from samestep.torch_impl.models.dropout import dropout
from samestep.torch_impl.models.layers import activate
from samestep.torch_impl.models.segmented import SegmentFunction, run_segments


class Mlp(nn.Module):
    """[batch, ...] -> [batch, outputs]."""

    def __init__(self, spec: MlpSpec) -> None:
        super().__init__()
        self.activation = spec.activation
        sizes = [spec.features, *[spec.width] * (spec.layers - 1), spec.outputs]
        hidden = [linear(spec.norm, sizes[i], sizes[i + 1]) for i in range(spec.layers - 1)]
        self.layers = nn.ModuleList([*hidden, nn.Linear(*sizes[-2:])])
        self.dropouts = nn.ModuleList(dropout(spec.dropout, i, f"layers/{i}") for i in range(spec.layers - 1))

    def segments(self) -> dict[str, SegmentFunction]:
        """Makes one segment per layer."""
        return {f"layers/{i}": functools.partial(self._layer, i) for i in range(len(self.layers))}

    def _layer(self, i: int, x: torch.Tensor) -> torch.Tensor:
        x = self.layers[i](x.flatten(1))
        return self.dropouts[i](activate(self.activation, x)) if i + 1 < len(self.layers) else x

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Runs all segments in order."""
        return run_segments(self.segments().values(), x)
