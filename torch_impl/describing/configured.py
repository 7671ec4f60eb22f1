"""What a user's model and its optimizer are configured to do, where `samestep port` cannot see it in numbers."""

from collections.abc import Mapping

import torch
from torch import nn

from samestep.torch_impl.weights import Weight

HyperParameters = dict[str, dict[str, bool | float | str | list[float]]]
"""The settings of an optimizer for each parameter, by neutral name."""


def dropouts(model: nn.Module) -> dict[str, tuple[str, float]]:
    """Returns what each layer drops in training, by its path: what it drops, and how much of it."""
    found: dict[str, tuple[str, float]] = {}
    for path, module in model.named_modules():
        if isinstance(module, nn.modules.dropout._DropoutNd):
            found[path] = (_DROPPED.get(type(module).__name__, "channels"), float(module.p))
        elif isinstance(module, nn.MultiheadAttention | nn.RNNBase):
            found[path] = ("elements", float(module.dropout))
    return found


_DROPPED = {"Dropout": "elements", "AlphaDropout": "elements of SELU", "FeatureAlphaDropout": "channels of SELU"}


def hyper_parameters(optimizer: torch.optim.Optimizer, named: Mapping[str, Weight]) -> HyperParameters:
    """Returns the settings of an optimizer for each parameter that it updates, by neutral name.

    Args:
        optimizer: The optimizer.
        named: The parameters.
    """
    names = {id(weight.parameter): name for name, weight in named.items()}
    kind, found = type(optimizer).__name__, {}
    for group in optimizer.param_groups:
        held: dict[str, bool | float | str | list[float]] = {"kind": kind}
        for name, value in group.items():
            if isinstance(value, torch.Tensor) and value.numel() == 1:
                held[name] = float(value)
            elif isinstance(value, bool | int | float | str):
                held[name] = value
            elif isinstance(value, tuple) and all(isinstance(each, int | float) for each in value):
                held[name] = list(value)
        # Without momentum, a decay in the gradient is the same as one beside it. What another package does is not known.
        is_plain = kind == "SGD" and not group.get("momentum")
        is_own = not type(optimizer).__module__.startswith("torch.optim")
        held["is_decoupled"] = bool(kind == "AdamW" or group.get("decoupled_weight_decay") or is_plain or is_own)
        found |= {names[id(parameter)]: held for parameter in group["params"] if id(parameter) in names}
    return found
