"""Reads the settings of a user's optimizer, which `samestep port` cannot infer from numbers."""

from collections.abc import Mapping

import torch

from samestep.torch_impl.weights import Weight

HyperParameters = dict[str, dict[str, bool | float | str | list[float]]]
"""The settings of an optimizer for each parameter, by neutral name."""


def hyper_parameters(optimizer: torch.optim.Optimizer, named: Mapping[str, Weight]) -> HyperParameters:
    """Returns the settings of an optimizer for each parameter that it updates, by neutral name.

    Args:
        optimizer: The optimizer.
        named: The parameters by neutral name.
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
        # Without momentum, adding the decay to the gradient equals decoupling it. Other packages' optimizers are unknown.
        is_plain = kind == "SGD" and not group.get("momentum")
        is_own = not type(optimizer).__module__.startswith("torch.optim")
        held["is_decoupled"] = bool(kind == "AdamW" or group.get("decoupled_weight_decay") or is_plain or is_own)
        found |= {names[id(parameter)]: held for parameter in group["params"] if id(parameter) in names}
    return found
