"""One stage of a model on each RPC worker, and what the driver calls there."""

import dataclasses
from collections.abc import Sequence

import torch
from torch.distributed import rpc

from samestep.common.program import TrainState
from samestep.torch_impl.pipeline.stages import Stage
from samestep.torch_impl.rpc.group import Served
from samestep.torch_impl.step import Loss


@dataclasses.dataclass(frozen=True)
class WorkerStage:
    """The stage that one process holds.

    Attributes:
        stage: The module.
        loss: (logits, targets) -> the mean loss.
        served: Its parameters.
    """

    stage: Stage
    loss: Loss
    served: Served


_LOCAL: list[WorkerStage] = []
"""The stage of the present process: RPC calls functions by name, and they have to find it."""


def serve(stage: WorkerStage) -> None:
    """Makes a stage the one that calls find in this process; to be done before anyone can call."""
    _LOCAL[:] = [stage]


def _opened() -> WorkerStage:
    _LOCAL[0].served.opened.wait()
    return _LOCAL[0]


def forward(x: rpc.RRef) -> torch.Tensor:
    """Applies this worker's stage to activations, fetched from the worker that has them."""
    return _opened().stage(x.to_here())


def forward_loss(x: rpc.RRef, targets: torch.Tensor) -> torch.Tensor:
    """Applies this worker's stage, the last, and takes the loss of its logits.

    Args:
        x: The activations, on the worker that has them.
        targets: The targets of the same examples.
    """
    return _opened().loss(forward(x), targets)


def predict(x: torch.Tensor) -> torch.Tensor:
    """Applies this worker's stage, without a gradient."""
    with torch.no_grad():
        return _opened().stage(x)


def parameters() -> list[rpc.RRef]:
    """References to this worker's parameters, for `DistributedOptimizer`."""
    return [rpc.RRef(parameter) for parameter in _LOCAL[0].served.parameters]


def local_optimizer(params: Sequence[torch.nn.Parameter]) -> torch.optim.Optimizer:
    """Hands `DistributedOptimizer` the optimizer that is there, where it would make one; it is the same as everywhere.

    (Given torch.optim.SGD it would make a TorchScript copy of it instead, with other code and hidden optimizer state.)
    """
    return _LOCAL[0].served.optimizer


def snapshot(step: int) -> TrainState:
    """Copies this worker's part of the state."""
    return _LOCAL[0].served.local_state.snapshot(step)
