"""A parameter server's worker: it pulls, computes its shard, and pushes.

What it pulls and what it computes on it has two modes: a copy of the whole model, or rows of its tables.
"""

import contextlib
import dataclasses
import itertools
from collections.abc import Mapping, Sequence

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed import rpc
from torch.nn.parallel import DistributedDataParallel

from samestep.common.batch import Batch
from samestep.common.ledger import Footprint, Send
from samestep.common.program import Hardware, TrainState
from samestep.common.strategy import Run
from samestep.torch_impl import devices, weights
from samestep.torch_impl.activations import follow_activations
from samestep.torch_impl.exchanges import RECORDER, Observer
from samestep.torch_impl.local_state import build_local_state, merge
from samestep.torch_impl.models.inputs import Inputs, as_inputs
from samestep.torch_impl.optimizers import build_optimizer, set_rate
from samestep.torch_impl.parameter_server import server
from samestep.torch_impl.parameter_server.server import Wanted
from samestep.torch_impl.pipeline.stages import Stage
from samestep.torch_impl.rpc.group import CPU, leave_rpc, worker_name
from samestep.torch_impl.step import accumulate, mean_loss


class PullEverything:
    """The server holds the whole model; a worker has a copy to compute on.

    Attributes:
        stage: The part of the model that the worker runs.
        local_state: None, because nothing stays on the workers.
    """

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.local_state = None
        self._parameters = list(stage.parameters())

    def wanted(self, x: Inputs) -> Wanted:
        """Asks for every parameter as a whole."""
        return [None] * len(self._parameters)

    def accept(self, values: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Copies the values into the copy's parameters, whose gradients will be pushed; those of the last step are dropped."""
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
            first: Which of the inputs that were pulled for is the first of them.
        """
        return self.stage(x)

    def exchange(self, last: bool) -> contextlib.AbstractContextManager[None]:
        """Makes an empty context, because workers exchange nothing among each other."""
        return contextlib.nullcontext()

    def update(self, rate: float) -> None:
        """Does nothing, because the server updates everything.

        Args:
            rate: Ignored, likewise.
        """


class PullRows:
    """The server holds tables of rows; the layers above them stay on the workers, under DDP.

    Attributes:
        stage: The part of the model that the worker runs.
        local_state: The local state of what stays on the workers.
    """

    def __init__(self, run: Run, stage: Stage, workers: dist.ProcessGroup) -> None:
        self.stage = stage
        self._optimizer = build_optimizer(run.optimizer, stage.parameters())
        self.local_state = build_local_state(run, self._optimizer, stage.model)
        self._above = DistributedDataParallel(stage, process_group=workers)
        self._above.register_comm_hook(workers, _sum)  # DDP's own would take the mean

    def wanted(self, x: torch.Tensor) -> Wanted:
        """Asks for one row of each table per example."""
        return list(x.T)

    def accept(self, values: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Makes leaves of the rows: their gradients will be pushed, those of the last step are dropped."""
        self._optimizer.zero_grad()
        return [value.requires_grad_() for value in values]

    def logits(self, leaves: Sequence[torch.Tensor], x: torch.Tensor, first: int = 0) -> torch.Tensor:
        """Computes the logits of some examples from their rows, side by side.

        Args:
            leaves: The rows that were pulled.
            x: The examples' inputs.
            first: Which of the inputs that were pulled for is the first of them.
        """
        return self._above(torch.cat([leaf[first : first + len(x)] for leaf in leaves], dim=1))

    def exchange(self, last: bool) -> contextlib.AbstractContextManager[None]:
        """All-reduces the gradients of the layers above, on the last micro-batch."""
        return contextlib.nullcontext() if last else self._above.no_sync()

    def update(self, rate: float) -> None:
        """Updates the layers above at a learning rate, on every worker alike."""
        set_rate(self._optimizer, rate)
        self._optimizer.step()


def _sum(workers: dist.ProcessGroup, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """A communication hook of DDP: the gradients' sum."""
    work = dist.all_reduce(bucket.buffer(), group=workers, async_op=True)
    return work.get_future().then(lambda done: done.value()[0])


class WorkerProgram:
    """A worker in training."""

    def __init__(self, run: Run, mode: PullEverything | PullRows, hardware: Hardware) -> None:
        self.hardware = hardware
        self._run, self._mode, self._loss = run, mode, mean_loss(run)
        self._rank = dist.get_rank()
        self._shard = self._rank, run.num_devices
        self._server = worker_name(run.num_devices)
        self._step = self._gradients_bytes = self._pulled_bytes = self._activations_bytes = 0
        self._pushes = self._staleness = 0  # the sum over all pushes
        self._losses: list[torch.Tensor] = []
        self._sends: tuple[Send, ...] = ()

    def step(self, batch: Batch) -> None:
        """Pulls what the shard needs, forward and backward, pushes the gradients; what stays here is updated here."""
        mode = self._mode
        inputs, _ = batch.rows(*self._shard)
        wanted = mode.wanted(as_inputs(inputs))
        RECORDER.phase = "forward"
        values, version = rpc.rpc_sync(self._server, server.pull, (wanted,))
        self._record("pull", values)
        self._pulled_bytes = weights.nbytes(values)
        leaves = mode.accept(values)
        starts = itertools.count(0, len(inputs) // self._run.accumulation_steps)

        def forward_backward(inputs: np.ndarray, targets: np.ndarray, last: bool) -> torch.Tensor:
            with mode.exchange(last):
                logits = mode.logits(leaves, as_inputs(inputs), next(starts))
                loss = self._loss(logits, torch.from_numpy(targets))
                loss.backward()
            return loss

        self._losses.append(accumulate(self._run, batch, self._shard, forward_backward))
        self._gradients_bytes = weights.nbytes(parameter.grad for parameter in mode.stage.parameters())
        gradients = [leaf.grad for leaf in leaves]
        self._record("push", gradients)
        self._staleness += rpc.rpc_sync(self._server, server.push, (self._rank, (wanted, gradients, version)))
        self._pushes += 1
        self._step += 1
        mode.update(self._run.optimizer_at(self._step).learning_rate)

    def _record(self, operation: str, tensors: Sequence[torch.Tensor]) -> None:
        """Records what is moved between this worker and the server, the ids of rows not counted."""
        RECORDER.add(operation, tensors, "data", self._shard[1], str(self._shard[1]))

    def losses(self) -> list[float]:
        """The global losses since the last call: the server adds up those of all workers."""
        taken, self._losses = self._losses, []
        if not taken:
            return []
        return rpc.rpc_sync(self._server, server.add_losses, (self._rank, torch.stack(taken))).tolist()

    def agree(self, value: float) -> float:
        """Computes the mean over workers, as losses are summed."""
        both = torch.tensor([value, 1.0], dtype=torch.float64)
        total, count = rpc.rpc_sync(self._server, server.add_losses, (self._rank, both)).tolist()
        return total / count

    def predict(self, inputs: np.ndarray) -> np.ndarray:
        """Computes logits on rank 0, with what it pulls."""
        if self._rank > 0:
            return inputs
        x = as_inputs(inputs)
        values, _ = rpc.rpc_sync(self._server, server.pull, (self._mode.wanted(x),))
        with torch.no_grad():
            return self._mode.logits(self._mode.accept(values), x).numpy()

    def state(self) -> TrainState:
        """Fetches the server's part on rank 0, and adds what stays on the workers."""
        parts = [rpc.rpc_sync(self._server, server.snapshot, (self._step,))] if self._rank == 0 else []
        if self._mode.local_state is not None:
            parts.append(self._mode.local_state.snapshot(self._step))
        return merge(parts)

    def restore(self, state: TrainState) -> None:
        """Copies what stays on the workers in place; the server does so with its own part before it opens for pulls."""
        self._step = state.step
        if self._mode.local_state is not None:
            self._mode.local_state.restore(state)

    def observe(self, batch: Batch) -> None:
        """Takes one more step; collectives among workers are recorded as they are dispatched, calls as they are made."""
        RECORDER.start()
        with Observer(), follow_activations(self._mode.stage) as kept:
            self.step(batch)
        self._activations_bytes = kept.peak_bytes
        self._sends = RECORDER.stop()

    def sends(self) -> tuple[Send, ...]:
        """What it pulled, pushed and exchanged with other workers."""
        return self._sends

    def footprint(self) -> tuple[Footprint, ...]:
        """The tensors of this process; at their peak with the rows that were pulled."""
        if self._mode.local_state is not None:
            own = self._mode.local_state.footprint(CPU, self._gradients_bytes, self._pulled_bytes)
        else:  # a copy, whose gradients are pushed
            own = Footprint.uniform(str(CPU), self._gradients_bytes, 0, "tensors")
        return (dataclasses.replace(own, activations_bytes=self._activations_bytes),)

    def measures(self) -> Mapping[str, float]:
        """How old the parameters were to which this worker's gradients were applied."""
        return {"staleness": self._staleness / self._pushes}

    def sync(self) -> None:
        """Returns at once: a step is over when its calls have returned."""

    def close(self) -> None:
        """Leaves the group when every process does."""
        leave_rpc()
        devices.leave_group()
