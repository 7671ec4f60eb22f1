"""The optimizers, one file with `build` each; torch's own where their algebra is that of `common/workload/optimizers/`."""

import importlib
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import torch
from torch import nn

from samestep.common.errors import ConfigError, WorkerFailed
from samestep.common.strategy import Run
from samestep.common.workload.optimizers.spec import OptimizerSpec, Shape, groups_vectors
from samestep.torch_impl.optimizers import own
from samestep.torch_impl.weights import named_weights


def slot_keys(spec: OptimizerSpec) -> Mapping[str, str]:
    """Returns neutral slot name -> torch's key in `optimizer.state[parameter]`; a user's optimizer keeps its own names."""
    return {slot: spec.keys.get(slot, slot) for slot in spec.slots}


def leave(optimizer: torch.optim.Optimizer, groups: Iterable[Mapping[str, Any]]) -> torch.optim.Optimizer:
    """Reduces an optimizer of all parameters to those of this rank, so its builder sees all parameters in every row.

    Args:
        optimizer: The optimizer, before its first step.
        groups: The groups with the parameters that this rank updates.
    """
    own = {parameter for group in groups for parameter in group["params"]}
    for group in optimizer.param_groups:
        group["params"] = [parameter for parameter in group["params"] if parameter in own]
    for parameter in [each for each in optimizer.state if each not in own]:
        del optimizer.state[parameter]
    return optimizer


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Sets the learning rate of the next update; the rates of groups keep their ratios.

    If the user's optimizer was already given this rate, it is left alone, as the user's own schedule may have changed it.

    Args:
        optimizer: The optimizer.
        rate: The learning rate.
    """
    for group in optimizer.param_groups:
        if own.RATIO not in group:
            group["lr"] = rate
        elif rate != group[own.ASKED]:
            group["lr"], group[own.ASKED] = rate * group[own.RATIO], rate


def particular_slots(run: Run) -> dict[str, Mapping[str, Shape]]:
    """Finds the parameters for which an optimizer does not keep every slot in the parameter's shape.

    Returns:
        For each such parameter, by name, the shape of each slot that it has, in the neutral layout.
    """
    optimizer, params = run.optimizer, run.workload.model.params()
    kept = {name: optimizer.state(param) for name, param in params.items()}
    return {name: each for name, each in kept.items() if each != dict.fromkeys(optimizer.slots, params[name].shape)}


def matrices_of(run: Run, *models: nn.Module) -> set[nn.Parameter]:
    """Returns the parameters that the optimizer updates as whole matrices; none if it is elementwise.

    Args:
        run: The run.
        *models: The models or stages, without wrappers.
    """
    if run.optimizer.is_elementwise:
        return set()
    params, named = run.workload.model.params(), named_weights(*models)
    return {weight.parameter for name, weight in named.items() if params[name].is_matrix}


def _groups(spec: OptimizerSpec, parameters: Iterable[nn.Parameter]) -> Iterable[Any]:
    """Returns the parameter groups; vectors get their own group if they are updated differently from matrices."""
    if not groups_vectors(spec):
        return parameters
    every, own_rate = list(parameters), {own.RATIO: spec.vector_rate, own.ASKED: spec.learning_rate}
    vectors = {
        "params": [each for each in every if each.ndim < 2],
        "lr": spec.learning_rate * spec.vector_rate,
        **own_rate,
    }
    vectors |= {"weight_decay": 0.0} if spec.spares_vectors else {}
    return [{"params": [each for each in every if each.ndim > 1]}, vectors]


def build_optimizer(
    spec: OptimizerSpec, parameters: Iterable[nn.Parameter], matrices: Collection[nn.Parameter] = ()
) -> torch.optim.Optimizer:
    """Builds the optimizer of a spec.

    Args:
        spec: The optimizer and its hyper-parameters.
        parameters: The parameters to update, which may already be sharded.
        matrices: The parameters to update as whole matrices; see `matrices_of`.

    Raises:
        WorkerFailed: The function in the user's file fails, although it accepted the parameters when the model was described.
    """
    try:
        build = importlib.import_module(f"{__name__}.{spec.name}").build
        groups = _groups(spec, parameters)
        return build(spec, groups) if spec.is_elementwise else build(spec, groups, matrices)
    except ConfigError as error:  # the request is valid, or it would have been refused before this process started
        raise WorkerFailed(str(error)) from error
