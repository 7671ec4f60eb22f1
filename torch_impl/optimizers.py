"""The updates: torch's own SGD and AdamW, whose algebra is the one in `common/workload/optimizers.py`."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn

from samestep.common.errors import ConfigError, WorkerFailed
from samestep.common.workload.declared import call_user, load_model
from samestep.common.workload.optimizers import OWN, OptimizerSpec

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


def own(spec: OptimizerSpec, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """Builds the optimizer of the user's file.

    Args:
        spec: Says where it is declared.
        parameters: The parameters to update.

    Raises:
        ConfigError: Their function fails, or returns something else.
    """
    builders = load_model(spec.source, "torch").optimizer
    assert builders is not None
    made = call_user(builders["torch"], spec.source, "the function given as optimizer", list(parameters))
    if not isinstance(made, torch.optim.Optimizer):
        kind = type(made).__name__
        raise ConfigError(
            f"--model {spec.source}: the function given as optimizer returned {kind}, no torch optimizer."
        )
    return made


UPDATES = {"sgd": sgd, "adamw": adamw, OWN: own}


def slot_keys(spec: OptimizerSpec) -> Mapping[str, str]:
    """The neutral names of an optimizer's slots, with torch's key in `optimizer.state[parameter]`; the user's keep theirs."""
    return {key: key for key in spec.kept} if spec.name == OWN else SLOT_KEYS[spec.name]


def leave(optimizer: torch.optim.Optimizer, groups: Iterable[Mapping[str, Any]]) -> torch.optim.Optimizer:
    """Leaves an optimizer of all parameters those of this rank: the function that builds it sees what it sees in every row.

    Args:
        optimizer: The optimizer, in which nothing has been updated.
        groups: Its groups, with the parameters that this rank updates.
    """
    own = {parameter for group in groups for parameter in group["params"]}
    for group in optimizer.param_groups:
        group["params"] = [parameter for parameter in group["params"] if parameter in own]
    for parameter in [each for each in optimizer.state if each not in own]:
        del optimizer.state[parameter]
    return optimizer


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

    Raises:
        WorkerFailed: The function of the user's file fails here, which took the parameters when the model was described.
    """
    try:
        return UPDATES[spec.name](spec, parameters)
    except ConfigError as error:  # the request is right, or it would have been refused before this process was started
        raise WorkerFailed(str(error)) from error
