"""Makes a user model and its optimizer do what the other implementation does, where the user accepts the difference."""

import itertools
import math
from collections.abc import Mapping

import torch
from torch import nn

from samestep.common.porting.model_trace import Amendments
from samestep.torch_impl import upstream
from samestep.torch_impl.describing.turned import turn_module
from samestep.torch_impl.weights import Weight

_KEYS = {"learning_rate": "lr", "epsilon": "eps"}


def amend_module(module: nn.Module, amendments: Amendments) -> None:
    """Changes a model according to the amendments.

    Args:
        module: The model to change in place.
        amendments: The differences that the user accepts.
    """
    for path, settings in amendments.modules.items():
        for name, value in settings.items():
            setattr(module.get_submodule(path), name, value)
    for name in amendments.frozen:
        module.get_parameter(name).requires_grad_(False)
    for path, turned in amendments.turned.items():
        turn_module(module, path, turned)


def amend_optimizer(optimizer: torch.optim.Optimizer, named: Mapping[str, Weight], amendments: Amendments) -> None:
    """Changes an optimizer according to the amendments. A group gets the settings of its first parameter.

    Args:
        optimizer: The optimizer, before its first step.
        named: The parameters by neutral name.
        amendments: The differences that the user accepts.
    """
    names = {id(weight.parameter): name for name, weight in named.items()}
    for group in optimizer.param_groups:
        for name, value in amendments.optimizer.get(names.get(id(group["params"][0]), ""), {}).items():
            _set(group, name, value)
    if amendments.is_adding_early:
        _add_early(optimizer)


def _set(group: dict[str, object], name: str, value: object) -> None:
    betas = group.get("betas")
    if name in ("beta_1", "beta_2") and isinstance(betas, tuple):
        group["betas"] = tuple(value if name == f"beta_{n}" else beta for n, beta in enumerate(betas, 1))
        return
    key = _KEYS.get(name, name)
    if key in group:
        group[key] = value
    if name == "weight_decay" and "decoupled_weight_decay" in group:
        group["decoupled_weight_decay"] = True


def _add_early(optimizer: torch.optim.Optimizer) -> None:
    """Makes Adam add epsilon before the bias correction, which equals adding a larger epsilon after it.

    Keras computes the powers of its betas in float32, but not the weights of its moments (keras 3.15); the learning rate
    makes up for that. After the step, a schedule finds the settings as they were before.
    """
    numbers = itertools.count(1)
    plain = [dict(group) for group in optimizer.param_groups]

    def before(*_: object) -> None:
        number = next(numbers)
        plain[:] = [dict(group) for group in optimizer.param_groups]
        for group, given in zip(optimizer.param_groups, plain, strict=True):
            first, second = (
                (1 - beta**number, 1 - float(torch.tensor(beta, dtype=torch.float32)) ** number)
                for beta in given["betas"]
            )
            factor = math.sqrt(second[1] / second[0]) * first[0] / first[1]
            group["eps"], group["lr"] = given["eps"] / math.sqrt(second[0]), given["lr"] * factor
            group["weight_decay"] = given["weight_decay"] / factor

    def after(*_: object) -> None:
        for group, given in zip(optimizer.param_groups, plain, strict=True):
            group.update({name: given[name] for name in ("eps", "lr", "weight_decay")})

    optimizer.register_step_pre_hook(before)
    upstream.before_other_post_hooks(optimizer, after)
