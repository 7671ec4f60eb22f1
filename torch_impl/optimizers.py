"""The updates: torch's own SGD and AdamW, whose algebra is the one in `common/workload/optimizers.py`."""

from collections.abc import Iterable, Mapping

import torch
from torch import nn

from common.workload.optimizers import OptimizerSpec

# Optimizer -> neutral slot name -> torch's key in `optimizer.state[parameter]`.
SLOT_KEYS: Mapping[str, Mapping[str, str]] = {
    "sgd": {"momentum": "momentum_buffer"},
    "adamw": {"first_moment": "exp_avg", "second_moment": "exp_avg_sq"},
}


def sgd(spec: OptimizerSpec, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """SGD with momentum."""
    return torch.optim.SGD(parameters, lr=spec.learning_rate, momentum=spec.momentum)


def adamw(spec: OptimizerSpec, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """AdamW."""
    betas = (spec.beta1, spec.beta2)
    return torch.optim.AdamW(
        parameters, lr=spec.learning_rate, betas=betas, eps=spec.epsilon, weight_decay=spec.weight_decay
    )


UPDATES = {"sgd": sgd, "adamw": adamw}


def build_optimizer(spec: OptimizerSpec, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """The optimizer of a spec, over parameters that may be sharded already."""
    return UPDATES[spec.name](spec, parameters)
