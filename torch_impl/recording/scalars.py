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
        for name, value in group.items():
            if name in _IMPLEMENTATION:
                continue
            if isinstance(value, list | tuple):
                for part, each in enumerate(value):
                    _add(found, f"{name}.{part}{suffix}", each)
            else:
                _add(found, name + suffix, value)
    return found


def _add(found: dict[str, torch.Tensor | float], name: str, value: object) -> None:
    if isinstance(value, torch.Tensor):
        if value.numel() == 1:
            found[name] = value.detach().clone()
    elif isinstance(value, int | float):
        found[name] = float(value)
