"""The MLP: linear layers with GELU between them."""

import functools

import torch
from torch import nn
from torch.nn import functional

from common.workload.models.mlp import MlpSpec
from torch_impl.models.pieces import Piece, chained


class Mlp(nn.Module):
    """[batch, ...] -> logits [batch, classes]."""

    def __init__(self, spec: MlpSpec) -> None:
        super().__init__()
        sizes = [spec.features, *[spec.width] * (spec.layers - 1), spec.classes]
        self.layers = nn.ModuleList(nn.Linear(sizes[i], sizes[i + 1]) for i in range(spec.layers))

    def cuts(self) -> dict[str, Piece]:
        """One piece a layer."""
        return {f"layers/{i}": functools.partial(self._piece, i) for i in range(len(self.layers))}

    def _piece(self, i: int, x: torch.Tensor) -> torch.Tensor:
        x = self.layers[i](x.flatten(1))
        return functional.gelu(x) if i + 1 < len(self.layers) else x

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """All pieces in order."""
        return chained(self.cuts().values(), x)
