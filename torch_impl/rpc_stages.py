"""One stage of a model on each RPC worker, and what the driver calls there."""

import dataclasses
import threading
from collections.abc import Callable, Sequence

import torch
from torch.distributed import rpc

from common.strategy import TrainState
from torch_impl import stage_state, weights
from torch_impl.stages import Stage


@dataclasses.dataclass
class Held:
    """What one process holds.

    Attributes:
        stage: Its stage.
        loss: (logits, targets) -> the mean loss.
        optimizer: Over the stage's parameters.
        keys: The optimizer's slots.
        stepped: Released after each update, for the process's own loop to go on.
        gradients_bytes: Those that the last update took.
    """

    stage: Stage
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
    optimizer: torch.optim.Optimizer
    keys: stage_state.SlotKeys
    stepped: threading.Semaphore = dataclasses.field(default_factory=lambda: threading.Semaphore(0))
    gradients_bytes: int = 0

    def __post_init__(self) -> None:
        self.optimizer.register_step_pre_hook(self._weigh)
        self.optimizer.register_step_post_hook(lambda *_: self.stepped.release())

    def _weigh(self, *_: object) -> None:
        self.gradients_bytes = weights.nbytes(parameter.grad for parameter in self.stage.parameters())


HERE: list[Held] = []
"""What the present process holds: RPC calls functions by name, and they have to find it."""


def forward(x: rpc.RRef) -> torch.Tensor:
    """This worker's stage, on activations fetched from the worker that has them."""
    return HERE[0].stage(x.to_here())


def forward_loss(x: rpc.RRef, targets: torch.Tensor) -> torch.Tensor:
    """This worker's stage, the last, and the loss of its logits."""
    return HERE[0].loss(HERE[0].stage(x.to_here()), targets)


def predict(x: torch.Tensor) -> torch.Tensor:
    """This worker's stage, without a gradient."""
    with torch.no_grad():
        return HERE[0].stage(x)


def parameters() -> list[rpc.RRef]:
    """References to this worker's parameters, for `DistributedOptimizer`."""
    return [rpc.RRef(parameter) for parameter in HERE[0].stage.parameters()]


def local_optimizer(params: Sequence[torch.nn.Parameter]) -> torch.optim.Optimizer:
    """What `DistributedOptimizer` makes on each worker: the optimizer that is there, the same as everywhere.

    (Given torch.optim.SGD it would make a TorchScript copy of it instead, with other code and hidden slots.)
    """
    return HERE[0].optimizer


def state(step: int) -> TrainState:
    """This worker's part of the state."""
    held = HERE[0]
    return stage_state.taken(step, weights.named_weights(held.stage.model), held.optimizer, held.keys)


def restore(whole: TrainState) -> None:
    """This worker takes its part of a whole state."""
    held = HERE[0]
    stage_state.put(whole, weights.named_weights(held.stage.model), held.optimizer, held.keys)
