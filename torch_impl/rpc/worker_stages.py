"""One stage of a model on each RPC worker, and the functions that the driver calls there."""

import dataclasses
import time
from collections.abc import Mapping, Sequence
from typing import TypeVar

import torch
from torch.distributed import rpc

from samestep.common.program import TrainState
from samestep.torch_impl.devices import dist_world_size
from samestep.torch_impl.models.inputs import Inputs
from samestep.torch_impl.models.segmented import Handed, tensors_of
from samestep.torch_impl.pipeline.stages import Stage
from samestep.torch_impl.rpc.group import Served, own_rank
from samestep.torch_impl.step import Loss


@dataclasses.dataclass(frozen=True)
class WorkerStage:
    """The stage that one process holds.

    Attributes:
        stage: The module.
        loss: Computes the mean loss, given logits and targets.
        served: The parameters of the stage.
    """

    stage: Stage
    loss: Loss
    served: Served


Fetched = TypeVar("Fetched", bound=Inputs | Handed)
DRIVER = 0
"""The rank of the worker that drives all workers."""
_PAUSE_SECONDS = 0.0001
_LOCAL: list[WorkerStage] = []
"""The stage of this process. RPC calls functions by name, and they have to find it."""


def serve(stage: WorkerStage) -> None:
    """Makes a stage the one that calls find in this process; call it before any other process can call."""
    _LOCAL[:] = [stage]


def call_all(workers: Sequence[str], inputs: Inputs, targets: torch.Tensor) -> torch.Tensor:
    """Runs forward from worker to worker, and returns the loss that the last worker computes.

    Args:
        workers: The names of all workers, in the order of their stages.
        inputs: The inputs of some examples.
        targets: Their targets.
    """
    *others, last = workers
    record_send("forward", targets, len(others))
    x = rpc.RRef(inputs)
    for worker in others:
        x = rpc.remote(worker, forward, (x,))
    return with_gradient_sent(rpc.rpc_sync(last, forward_loss, (x, targets)), len(others))


def forward(x: rpc.RRef) -> Handed:
    """Applies this worker's stage to activations fetched from their owner; the next worker fetches the result."""
    out = _apply(x)
    record_send("forward", out, own_rank() + 1)
    return out


def forward_loss(x: rpc.RRef, targets: torch.Tensor) -> torch.Tensor:
    """Applies this worker's stage, which is the last, and returns the loss of its logits to the driver.

    Args:
        x: The activations, on the worker that has them.
        targets: The targets of the same examples.
    """
    loss = _LOCAL[0].loss(_apply(x), targets)  # pyrefly: ignore[bad-argument-type]
    record_send("forward", loss, DRIVER)
    return loss


def _apply(x: rpc.RRef) -> Handed:
    stage = _LOCAL[0].stage
    _LOCAL[0].served.await_step()
    return stage(with_gradient_sent(x.to_here(), x.owner().id))


def with_gradient_sent(fetched: Fetched, owner: int) -> Fetched:
    """Records the gradients of fetched tensors when they are sent back to the owner of the tensors.

    Args:
        fetched: The tensors, which another process may own.
        owner: The rank of that process.
    """
    for each in () if isinstance(fetched, Mapping) else tensors_of(fetched):
        if each.requires_grad:
            each.register_hook(lambda gradient: None if gradient is None else record_send("backward", gradient, owner))
    return fetched


def record_send(phase: str, handed: Handed, to: int) -> None:
    """Records what a call sends to another process.

    Args:
        phase: The phase of the step.
        handed: The tensors.
        to: The rank of that process; if it is this process, nothing is recorded.
    """
    if to != own_rank():
        _LOCAL[0].served.recorder.add("send", tensors_of(handed), "pipe", dist_world_size(), str(to), phase)


def await_answers() -> None:
    """Waits until every call of this process has been answered.

    The calls of a step have been answered by then. torch makes further calls when their context or a reference to their
    result ends, and nothing waits for these. (Private names, torch 2.13: its own `shutdown` waits for `client_active_calls`.)
    """
    agent = rpc.api._get_current_rpc_agent()
    while agent.get_debug_info()["agent.client_active_calls"] != "0":
        time.sleep(_PAUSE_SECONDS)


def predict(x: Inputs | Handed) -> Handed:
    """Applies this worker's stage without computing gradients."""
    stage = _LOCAL[0].stage
    stage.eval()
    with torch.no_grad():
        out = stage(x)
    stage.train()
    return out


def await_restored(workers: Sequence[str]) -> None:
    """Waits until all workers have their parts of the state from which the run continues.

    Args:
        workers: The names of the workers.
    """
    for worker in workers:
        rpc.rpc_sync(worker, _await_own)


def _await_own() -> None:
    _LOCAL[0].served.restored.wait()


def parameters() -> list[rpc.RRef]:
    """Returns references to this worker's parameters, for `DistributedOptimizer`."""
    return [rpc.RRef(parameter) for parameter in _LOCAL[0].served.parameters]


def local_optimizer(params: Sequence[torch.nn.Parameter]) -> torch.optim.Optimizer:
    """Returns the worker's existing optimizer to `DistributedOptimizer`, which would otherwise create one.

    Given torch.optim.SGD, it would create a TorchScript copy, which has different code and hides its optimizer state.
    """
    return _LOCAL[0].served.optimizer


def snapshot(step: int) -> TrainState:
    """Returns a copy of this worker's part of the state."""
    return _LOCAL[0].served.snapshot(step)
