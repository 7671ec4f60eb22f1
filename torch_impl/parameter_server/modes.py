"""What a worker pulls and computes on: a copy of the whole model, or rows of its tables."""

import contextlib
import dataclasses
from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from samestep.common.ledger import Footprint
from samestep.common.strategy import Run
from samestep.torch_impl import weights
from samestep.torch_impl.local_state import LocalState, build_local_state
from samestep.torch_impl.models.inputs import Inputs
from samestep.torch_impl.optimizers import build_optimizer, matrices_of, set_rate
from samestep.torch_impl.optimizers.state import LocalOptimizerState
from samestep.torch_impl.parameter_server.server import Wanted
from samestep.torch_impl.pipeline.stages import Stage
from samestep.torch_impl.rpc.group import CPU


class PullEverything:
    """The server holds the whole model; a worker has a copy to compute on.

    Attributes:
        stage: The part of the model that the worker runs.
        local_state: The state of what stays here: the buffers of the copy, such as running statistics.
    """

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self._parameters = list(stage.parameters())
        nothing = LocalOptimizerState(torch.optim.SGD(self._parameters))
        self.local_state = LocalState({}, nothing, {}, weights.named_buffers(stage.model))

    def wanted(self, x: Inputs) -> Wanted:
        """Asks for every parameter as a whole."""
        return [None] * len(self._parameters)

    def accept(self, values: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Copies the values into the copy's parameters, whose gradients will be pushed; those of the last step are dropped.

        A frozen parameter has no gradient.
        """
        with torch.no_grad():
            for parameter, value in zip(self._parameters, values, strict=True):
                parameter.copy_(value)
                parameter.grad = None
        return [*self._parameters]

    def logits(self, leaves: Sequence[torch.Tensor], x: Inputs, first: int = 0) -> torch.Tensor:
        """Computes the logits of some rows on the copy.

        Args:
            leaves: What was pulled.
            x: The rows' inputs.
            first: The index of the first of these among the inputs that were pulled for.
        """
        return self.stage(x)

    def exchange(self, last: bool) -> contextlib.AbstractContextManager[None]:
        """Makes an empty context, because workers exchange nothing among each other."""
        return contextlib.nullcontext()

    def update(self, rate: float) -> None:
        """Does nothing, because the server updates everything.

        Args:
            rate: Ignored.
        """

    def footprint(self, gradients_bytes: int, pulled_bytes: int) -> Footprint:
        """Returns a copy, whose gradients are pushed.

        Args:
            gradients_bytes: The bytes of the gradients of the last step.
            pulled_bytes: Ignored: what was pulled became the copy.
        """
        copied = weights.nbytes(self._parameters)
        return dataclasses.replace(Footprint.uniform(str(CPU), copied, 0, "tensors"), gradients_bytes=gradients_bytes)


class PullRows:
    """The server holds tables of rows; the layers above them stay on the workers, under DDP.

    Attributes:
        stage: The part of the model that the worker runs.
        local_state: The local state of what stays on the workers.
    """

    def __init__(self, run: Run, stage: Stage, workers: dist.ProcessGroup) -> None:
        self.stage = stage
        self._optimizer = build_optimizer(run.optimizer, stage.parameters(), matrices_of(run, stage.model))
        self.local_state = build_local_state(run, self._optimizer, stage.model)
        self._above = DistributedDataParallel(stage, process_group=workers)
        self._above.register_comm_hook(workers, _sum)  # DDP's own would take the mean

    def wanted(self, x: torch.Tensor) -> Wanted:
        """Asks for one row of each table per example."""
        return list(x.T)

    def accept(self, values: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Makes leaves of the rows, whose gradients will be pushed; the gradients of the last step are dropped."""
        self._optimizer.zero_grad()
        return [value.requires_grad_() for value in values]

    def logits(self, leaves: Sequence[torch.Tensor], x: torch.Tensor, first: int = 0) -> torch.Tensor:
        """Computes the logits of some examples from their rows, side by side.

        Args:
            leaves: The rows that were pulled.
            x: The examples' inputs.
            first: The index of the first of these among the inputs that were pulled for.
        """
        # Rank 0 predicts alone, and DDP sends its buffers.
        model = self._above if torch.is_grad_enabled() else self.stage
        return model(torch.cat([leaf[first : first + len(x)] for leaf in leaves], dim=1))

    def exchange(self, last: bool) -> contextlib.AbstractContextManager[None]:
        """All-reduces the gradients of the layers above, on the last micro-batch."""
        return contextlib.nullcontext() if last else self._above.no_sync()

    def update(self, rate: float) -> None:
        """Updates the layers above at a learning rate, on every worker alike."""
        set_rate(self._optimizer, rate)
        self._optimizer.step()

    def footprint(self, gradients_bytes: int, pulled_bytes: int) -> Footprint:
        """Returns what stays on the worker; at its peak with the rows that were pulled.

        Args:
            gradients_bytes: The bytes of the gradients of the last step.
            pulled_bytes: The bytes that were pulled in the last step.
        """
        return self.local_state.footprint(CPU, gradients_bytes, pulled_bytes)


def _sum(workers: dist.ProcessGroup, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Returns a communication hook of DDP: the gradients' sum."""
    work = dist.all_reduce(bucket.buffer(), group=workers, async_op=True)
    return work.get_future().then(lambda done: done.value()[0])
