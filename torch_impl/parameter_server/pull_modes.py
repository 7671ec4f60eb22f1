"""What a worker pulls, and what it computes on it: on a copy of the whole model, or on rows of its tables."""

import contextlib
from collections.abc import Sequence
from typing import Protocol

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from samestep.common.strategy import Run
from samestep.torch_impl import weights
from samestep.torch_impl.local_state import LocalState
from samestep.torch_impl.optimizer_state import LocalOptimizerState
from samestep.torch_impl.optimizers import SLOT_KEYS, build_optimizer
from samestep.torch_impl.parameter_server.server import Wanted
from samestep.torch_impl.pipeline.stages import Stage


class PullMode(Protocol):
    """What a worker computes on what it has pulled.

    Attributes:
        stage: The part of the model that the worker runs.
        local_state: Of what stays on the workers; None if nothing does.
    """

    stage: Stage
    local_state: LocalState | None

    def wanted(self, x: torch.Tensor) -> Wanted:
        """What to pull for these inputs."""

    def accept(self, values: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Makes leaves of what was pulled: their gradients will be pushed. Gradients of the last step are dropped."""

    def logits(self, leaves: Sequence[torch.Tensor], x: torch.Tensor, first: int = 0) -> torch.Tensor:
        """Computes the logits of some rows.

        Args:
            leaves: What was pulled.
            x: The rows' inputs.
            first: Which of the inputs that were pulled for is the first of them.
        """

    def exchange(self, last: bool) -> contextlib.AbstractContextManager[None]:
        """The context of each micro-batch's forward and backward pass, in which workers may exchange gradients."""

    def update(self) -> None:
        """Updates what stays on the workers."""


class PullEverything:
    """The server holds the whole model; a worker has a copy to compute on."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.local_state = None
        self._parameters = list(stage.parameters())

    def wanted(self, x: torch.Tensor) -> Wanted:
        """Every parameter, whole."""
        return [None] * len(self._parameters)

    def accept(self, values: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Copies the values into the copy's own parameters."""
        with torch.no_grad():
            for parameter, value in zip(self._parameters, values, strict=True):
                parameter.copy_(value)
                parameter.grad = None
        return [*self._parameters]

    def logits(self, leaves: Sequence[torch.Tensor], x: torch.Tensor, first: int = 0) -> torch.Tensor:
        """Computed by the copy."""
        return self.stage(x)

    def exchange(self, last: bool) -> contextlib.AbstractContextManager[None]:
        """Nothing is exchanged among workers."""
        return contextlib.nullcontext()

    def update(self) -> None:
        """Nothing: the server updates everything."""


class PullRows:
    """The server holds tables of rows; the layers above them stay on the workers, under DDP."""

    def __init__(self, run: Run, stage: Stage, workers: dist.ProcessGroup) -> None:
        self.stage = stage
        self._optimizer = build_optimizer(run.optimizer, stage.parameters())
        named, keys = weights.named_weights(stage.model), SLOT_KEYS[run.optimizer.name]
        self.local_state = LocalState(named, LocalOptimizerState(self._optimizer), keys)
        self._above = DistributedDataParallel(stage, process_group=workers)
        self._above.register_comm_hook(workers, _sum)  # DDP's own would take the mean

    def wanted(self, x: torch.Tensor) -> Wanted:
        """One row of each table per example."""
        return list(x.T)

    def accept(self, values: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The rows themselves."""
        self._optimizer.zero_grad()
        return [value.requires_grad_() for value in values]

    def logits(self, leaves: Sequence[torch.Tensor], x: torch.Tensor, first: int = 0) -> torch.Tensor:
        """Computed from the rows side by side."""
        return self._above(torch.cat([leaf[first : first + len(x)] for leaf in leaves], dim=1))

    def exchange(self, last: bool) -> contextlib.AbstractContextManager[None]:
        """The gradients of the layers above are all-reduced on the last micro-batch."""
        return contextlib.nullcontext() if last else self._above.no_sync()

    def update(self) -> None:
        """Updates the layers above, on every worker alike."""
        self._optimizer.step()


def _sum(workers: dist.ProcessGroup, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """A communication hook of DDP: the gradients' sum."""
    work = dist.all_reduce(bucket.buffer(), group=workers, async_op=True)
    return work.get_future().then(lambda done: done.value()[0])
