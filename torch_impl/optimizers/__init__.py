"""The updates: torch's own where their algebra is the one in `common/workload/optimizers/`; a file for each has its `build`."""

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
    """Returns the neutral names of an optimizer's slots, with torch's key in `optimizer.state[parameter]`; users' keep theirs."""
    return {slot: spec.keys.get(slot, slot) for slot in spec.slots}


def leave(optimizer: torch.optim.Optimizer, groups: Iterable[Mapping[str, Any]]) -> torch.optim.Optimizer:
    """Reduces an optimizer of all parameters to this rank's, so that the function that builds it sees all in every row.

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
    """Sets the learning rate of the next update, of each group in its ratio.

    Where the user's optimizer has it already, its own schedule may have moved it.

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
    """Finds the parameters for which the optimizer of a run keeps something else than every slot in the parameter's shape.

    Returns:
        By name, the shape of each slot that they have, in the neutral layout.
    """
    optimizer, params = run.optimizer, run.workload.model.params()
    kept = {name: optimizer.state(param) for name, param in params.items()}
    return {name: each for name, each in kept.items() if each != dict.fromkeys(optimizer.slots, params[name].shape)}


def matrices_of(run: Run, *models: nn.Module) -> set[nn.Parameter]:
    """Finds the parameters that an optimizer of whole matrices updates as such; none for an elementwise one.

    Args:
        run: The run.
        *models: Not wrapped.
    """
    if run.optimizer.is_elementwise:
        return set()
    params, named = run.workload.model.params(), named_weights(*models)
    return {weight.parameter for name, weight in named.items() if params[name].is_matrix}


def _groups(spec: OptimizerSpec, parameters: Iterable[nn.Parameter]) -> Iterable[Any]:
    """Gives vectors a group of their own, if they are updated otherwise than matrices."""
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
        parameters: The parameters to update; they may be sharded already.
        matrices: Those of them that an optimizer of whole matrices updates as such, as `matrices_of` finds them.

    Raises:
        WorkerFailed: The function of the user's file fails here, though it accepted the parameters when the model was
            described.
    """
    try:
        build = importlib.import_module(f"{__name__}.{spec.name}").build
        groups = _groups(spec, parameters)
        return build(spec, groups) if spec.is_elementwise else build(spec, groups, matrices)
    except ConfigError as error:  # the request is right, or it would have been refused before this process was started
        raise WorkerFailed(str(error)) from error
