"""The two modes of a worker: it pulls the whole model, or only rows of its tables."""

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
        local_state: The state that stays on the worker: the buffers of the copy, such as running statistics.
    """

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self._parameters = list(stage.parameters())
        nothing = LocalOptimizerState(torch.optim.SGD(self._parameters))
        self.local_state = LocalState({}, nothing, {}, weights.named_buffers(stage.model))

    def wanted(self, x: Inputs) -> Wanted:
        """Returns a request for every parameter as a whole."""
        return [None] * len(self._parameters)

    def accept(self, values: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Copies the values into the parameters of the copy, drops the gradients of the last step, and returns the parameters.

        Their gradients will be pushed; a frozen parameter has none.
        """
        with torch.no_grad():
            for parameter, value in zip(self._parameters, values, strict=True):
                parameter.copy_(value)
                parameter.grad = None
        return [*self._parameters]

    def logits(self, leaves: Sequence[torch.Tensor], x: Inputs, first: int = 0) -> torch.Tensor:
        """Returns the logits of some rows, computed on the copy.

        Args:
            leaves: The parameters that were pulled.
            x: The inputs of the rows.
            first: The index of the first row among all inputs for which parameters were pulled.
        """
        return self.stage(x)

    def exchange(self, last: bool) -> contextlib.AbstractContextManager[None]:
        """Returns an empty context, because workers exchange nothing with each other."""
        return contextlib.nullcontext()

    def update(self, rate: float) -> None:
        """Does nothing, because the server updates everything.

        Args:
            rate: Ignored.
        """

    def footprint(self, gradients_bytes: int, pulled_bytes: int) -> Footprint:
        """Returns the footprint of the copy and its gradients.

        Args:
            gradients_bytes: The bytes of the gradients of the last step.
            pulled_bytes: Ignored, because what was pulled became the copy.
        """
        copied = weights.nbytes(self._parameters)
        return dataclasses.replace(Footprint.uniform(str(CPU), copied, 0, "tensors"), gradients_bytes=gradients_bytes)


class PullRows:
    """The server holds tables of rows; the layers above them stay on the workers, under DDP.

    Attributes:
        stage: The part of the model that the worker runs.
        local_state: The state that stays on the workers.
    """

    def __init__(self, run: Run, stage: Stage, workers: dist.ProcessGroup) -> None:
        self.stage = stage
        self._optimizer = build_optimizer(run.optimizer, stage.parameters(), matrices_of(run, stage.model))
        self.local_state = build_local_state(run, self._optimizer, stage.model)
        self._above = DistributedDataParallel(stage, process_group=workers)
        self._above.register_comm_hook(workers, _sum)  # DDP would take the mean

    def wanted(self, x: torch.Tensor) -> Wanted:
        """Returns a request for one row of each table per example."""
        return list(x.T)

    def accept(self, values: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Drops the gradients of the last step, and returns the rows as leaves, whose gradients will be pushed."""
        self._optimizer.zero_grad()
        return [value.requires_grad_() for value in values]

    def logits(self, leaves: Sequence[torch.Tensor], x: torch.Tensor, first: int = 0) -> torch.Tensor:
        """Returns the logits of some examples, computed from their concatenated rows.

        Args:
            leaves: The rows that were pulled.
            x: The inputs of the examples.
            first: The index of the first example among all inputs for which rows were pulled.
        """
        # Only rank 0 predicts, and DDP would broadcast buffers to the others.
        model = self._above if torch.is_grad_enabled() else self.stage
        return model(torch.cat([leaf[first : first + len(x)] for leaf in leaves], dim=1))

    def exchange(self, last: bool) -> contextlib.AbstractContextManager[None]:
        """Returns the context of a pass; on the last micro-batch, DDP sums the gradients of the layers above the tables."""
        return contextlib.nullcontext() if last else self._above.no_sync()

    def update(self, rate: float) -> None:
        """Updates the layers above the tables at a learning rate, identically on every worker."""
        set_rate(self._optimizer, rate)
        self._optimizer.step()

    def footprint(self, gradients_bytes: int, pulled_bytes: int) -> Footprint:
        """Returns the footprint of what stays on the worker; its peak includes the rows that were pulled.

        Args:
            gradients_bytes: The bytes of the gradients of the last step.
            pulled_bytes: The bytes that were pulled in the last step.
        """
        return self.local_state.footprint(CPU, gradients_bytes, pulled_bytes)


def _sum(workers: dist.ProcessGroup, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Sums the gradients of a bucket; a communication hook for DDP."""
    work = dist.all_reduce(bucket.buffer(), group=workers, async_op=True)
    return work.get_future().then(lambda done: done.value()[0])
