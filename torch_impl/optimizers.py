"""The updates: torch's own SGD and AdamW, whose algebra is the one in `common/workload/optimizers.py`."""

from collections.abc import Iterable, Mapping

import torch
from torch import nn

from samestep.common.workload.optimizers import OptimizerSpec

# Optimizer -> neutral name of its state -> torch's key in `optimizer.state[parameter]`.
SLOT_KEYS: Mapping[str, Mapping[str, str]] = {
    "sgd": {"momentum": "momentum_buffer"},
    "adamw": {"first_moment": "exp_avg", "second_moment": "exp_avg_sq"},
}


def sgd(spec: OptimizerSpec, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """Builds SGD with momentum.

    Args:
        spec: The hyper-parameters.
        parameters: The parameters to update.
    """
    return torch.optim.SGD(parameters, lr=spec.learning_rate, momentum=spec.momentum)


def adamw(spec: OptimizerSpec, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """Builds AdamW.

    Args:
        spec: The hyper-parameters.
        parameters: The parameters to update.
    """
    betas = (spec.beta1, spec.beta2)
    return torch.optim.AdamW(
        parameters, lr=spec.learning_rate, betas=betas, eps=spec.epsilon, weight_decay=spec.weight_decay
    )


UPDATES = {"sgd": sgd, "adamw": adamw}


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Sets the learning rate of the next update.

    Args:
        optimizer: The optimizer.
        rate: The learning rate.
    """
    for group in optimizer.param_groups:
        group["lr"] = rate


def build_optimizer(spec: OptimizerSpec, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """Builds the optimizer of a spec.

    Args:
        spec: The optimizer and its hyper-parameters.
        parameters: The parameters to update; they may be sharded already.
    """
    return UPDATES[spec.name](spec, parameters)
