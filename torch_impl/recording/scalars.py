"""The numbers of an optimizer's groups."""

import torch
from torch.optim import Optimizer

_IMPLEMENTATION = {"params", "param_names", "foreach", "fused", "capturable", "differentiable"}
"""What chooses how an update is computed, and not which."""


def scalars_of(optimizer: Optimizer, first: int) -> dict[str, torch.Tensor | float]:
    """Every number of every group: "lr" of the first group, "lr/1" of the second.

    Args:
        optimizer: The optimizer.
        first: How many groups other optimizers of the step have.
    """
    found: dict[str, torch.Tensor | float] = {}
    for place, group in enumerate(optimizer.param_groups, first):
        suffix = f"/{place}" if place else ""
        for name in (each for each in group if each not in _IMPLEMENTATION):
            value = group[name]
            parts = (
                {f"{name}.{k}": each for k, each in enumerate(value)}
                if isinstance(value, list | tuple)
                else {name: value}
            )
            for key, each in parts.items():
                if isinstance(each, torch.Tensor) and each.numel() == 1:
                    found[key + suffix] = each.detach().clone()
                elif isinstance(each, int | float):
                    found[key + suffix] = float(each)
    return found
