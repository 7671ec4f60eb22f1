"""The two programs of a parameter server: the workers', who compute, and the server's own, which waits for them."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed import rpc
from torch.nn.parallel import DistributedDataParallel

from common.batch import Batch
from common.config import RunConfig
from common.ledger import Exchange, Footprint
from common.strategy import TrainState
from torch_impl import devices, parameter_server, stage_state, weights
from torch_impl.exchanges import CountExchanges
from torch_impl.parameter_server import Server, Wanted
from torch_impl.rpc_group import leave_rpc, worker_name
from torch_impl.stages import Stage

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
CPU = torch.device("cpu")


class Front(Protocol):
    """What a worker computes on what it has pulled.

    Attributes:
        stage: The part of the model that the worker runs.
        optimizer: Over what stays on the workers; None if nothing does.
    """

    stage: Stage
    optimizer: torch.optim.Optimizer | None

    def wanted(self, x: torch.Tensor) -> Wanted:
        """What to pull for these inputs."""

    def accept(self, values: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Makes leaves of what was pulled: their gradients will be pushed."""

    def logits(self, leaves: Sequence[torch.Tensor], x: torch.Tensor, rows: slice) -> torch.Tensor:
        """Of some rows of the inputs."""

    def before_backward(self, last: bool) -> contextlib.AbstractContextManager[None]:
        """Entered around forward and backward of each micro-batch."""


class EverythingPulled:
    """The server holds the whole model; a worker has a copy to compute on."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.optimizer = None
        self._parameters = list(stage.parameters())

    def wanted(self, x: torch.Tensor) -> Wanted:
        """Every parameter, whole."""
        return [None] * len(self._parameters)

    def accept(self, values: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The copy's own parameters."""
        with torch.no_grad():
            for parameter, value in zip(self._parameters, values, strict=True):
                parameter.copy_(value)
                parameter.grad = None
        return [*self._parameters]

    def logits(self, leaves: Sequence[torch.Tensor], x: torch.Tensor, rows: slice) -> torch.Tensor:
        """By the copy."""
        return self.stage(x[rows])

    def before_backward(self, last: bool) -> contextlib.AbstractContextManager[None]:
        """Nothing is exchanged among workers."""
        return contextlib.nullcontext()


class RowsPulled:
    """The server holds tables of rows; the layers above them stay on the workers, under DDP."""

    def __init__(self, stage: Stage, optimizer: torch.optim.Optimizer, workers: dist.ProcessGroup) -> None:
        self.stage = stage
        self.optimizer = optimizer
        self._above = DistributedDataParallel(stage, process_group=workers)
        self._above.register_comm_hook(workers, _sum)  # DDP's own would take the mean

    def wanted(self, x: torch.Tensor) -> Wanted:
        """One row of each table per example."""
        return list(x.T)

    def accept(self, values: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The rows themselves."""
        return [value.requires_grad_() for value in values]

    def logits(self, leaves: Sequence[torch.Tensor], x: torch.Tensor, rows: slice) -> torch.Tensor:
        """Of the rows side by side."""
        return self._above(torch.cat([leaf[rows] for leaf in leaves], dim=1))

    def before_backward(self, last: bool) -> contextlib.AbstractContextManager[None]:
        """The gradients of the layers above are all-reduced on the last micro-batch."""
        return contextlib.nullcontext() if last else self._above.no_sync()


def _sum(workers: dist.ProcessGroup, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """A communication hook of DDP: the gradients' sum."""
    work = dist.all_reduce(bucket.buffer(), group=workers, async_op=True)
    return work.get_future().then(lambda done: done.value()[0])


class WorkerProgram:
    """A worker: pulls, computes its shard, pushes."""

    def __init__(self, config: RunConfig, front: Front, loss: Loss, keys: stage_state.SlotKeys) -> None:
        self.device_note = "one process per worker, and one more that serves"
        self.workers = dist.get_world_size() - 1
        self.server = worker_name(self.workers)
        self.front, self.loss, self.keys = front, loss, keys
        self.micro_batches = config.techniques.micro_batches
        self._dtype = getattr(torch, config.dtype)
        self._step = self._gradients_bytes = self._pulled_bytes = 0
        self._losses: list[torch.Tensor] = []
        self._staleness: list[int] = []

    def step(self, batch: Batch) -> None:
        """Pulls what the shard needs, forward and backward, pushes the gradients; what stays here is updated here."""
        inputs, targets = (torch.from_numpy(array) for array in batch.rows(dist.get_rank(), self.workers))
        front = self.front
        wanted = front.wanted(inputs)
        values, version = rpc.rpc_sync(self.server, parameter_server.pull, (wanted,))
        self._pulled_bytes = weights.nbytes(values)
        leaves = front.accept(values)
        if front.optimizer is not None:
            front.optimizer.zero_grad()
        rows = len(inputs) // self.micro_batches
        losses = []
        for micro in range(self.micro_batches):
            part = slice(micro * rows, (micro + 1) * rows)
            with front.before_backward(micro == self.micro_batches - 1):
                loss = self.loss(front.logits(leaves, inputs, part), targets[part])
                loss.backward()
            losses.append(loss.detach())
        self._losses.append(torch.stack(losses).sum())
        self._gradients_bytes = weights.nbytes(parameter.grad for parameter in front.stage.parameters())
        pushed = (dist.get_rank(), wanted, [leaf.grad for leaf in leaves], version)
        self._staleness.append(rpc.rpc_sync(self.server, parameter_server.push, pushed))
        if front.optimizer is not None:
            front.optimizer.step()
        self._step += 1

    def losses(self) -> list[float]:
        """The global losses since the last call: the server sums those of all workers."""
        taken, self._losses = self._losses, []
        return rpc.rpc_sync(self.server, parameter_server.add_losses, (torch.stack(taken),)).tolist() if taken else []

    def predict(self, inputs: np.ndarray) -> np.ndarray:
        """Logits of rank 0, on what it pulls."""
        if dist.get_rank() > 0:
            return inputs
        x = torch.from_numpy(inputs)
        values, _ = rpc.rpc_sync(self.server, parameter_server.pull, (self.front.wanted(x),))
        with torch.no_grad():
            return self.front.logits(self.front.accept(values), x, slice(None)).numpy()

    def state(self) -> TrainState:
        """The server's part, and on rank 0 what stays on the workers."""
        parts = [rpc.rpc_sync(self.server, parameter_server.state, (self._step,))] if dist.get_rank() == 0 else []
        if self.front.optimizer is not None:
            named = weights.named_weights(self.front.stage.model)
            parts.append(stage_state.taken(self._step, named, self.front.optimizer, self.keys))
        return stage_state.merged(parts)

    def restore(self, state: TrainState) -> None:
        """What stays on the workers; the server takes its own part before it lets anyone pull."""
        self._step = state.step
        if self.front.optimizer is not None:
            named = weights.named_weights(self.front.stage.model)
            stage_state.put(state, named, self.front.optimizer, self.keys)

    def observe(self, batch: Batch) -> tuple[Exchange, ...]:
        """One more step, its collectives counted; calls are not among them."""
        with CountExchanges() as counted:
            self.step(batch)
        return counted.exchanges()

    def footprint(self) -> tuple[Footprint, ...]:
        """The tensors of this process; at their peak with the rows that were pulled."""
        own = list(self.front.stage.parameters())
        params, slots = weights.nbytes(own), 0
        peak = params
        if self.front.optimizer is not None:
            held = self.front.optimizer.state
            slots = weights.nbytes(held[p].get(key) for p in own for key in self.keys.values())
            peak += self._pulled_bytes
        return (Footprint(str(CPU), params, peak, self._gradients_bytes, slots, "tensors"),)

    def measures(self) -> Mapping[str, float]:
        """How old the parameters were to which this worker's gradients were applied."""
        return {"staleness": sum(self._staleness) / len(self._staleness)}

    def sync(self) -> None:
        """A step is over when its calls have returned."""

    def close(self) -> None:
        """Leaves once all do."""
        leave_rpc()
        devices.leave_group()


class ServerProgram:
    """The server, in step with the workers by waiting for their updates."""

    def __init__(self, server: Server, updates_per_step: int) -> None:
        self.device_note = "one process per worker, and one more that serves"
        self._server = server
        self._updates_per_step = updates_per_step

    def step(self, batch: Batch) -> None:
        """Opens for pulls; over when the step's updates have been applied."""
        self._server.opened.set()
        for _ in range(self._updates_per_step):
            self._server.applied.acquire()

    def losses(self) -> list[float]:
        """The workers' business."""
        return []

    def predict(self, inputs: np.ndarray) -> np.ndarray:
        """The workers' business."""
        return inputs

    def state(self) -> TrainState:
        """Rank 0 fetches it."""
        return TrainState(0, {}, {})

    def restore(self, state: TrainState) -> None:
        """What is held here."""
        stage_state.put(state, self._server.named, self._server.optimizer, self._server.keys)

    def observe(self, batch: Batch) -> tuple[Exchange, ...]:
        """One more step."""
        self.step(batch)
        return ()

    def footprint(self) -> tuple[Footprint, ...]:
        """The tensors of this process."""
        server = self._server
        own = [weight.parameter for weight in server.named.values()]
        return (stage_state.footprint(CPU, own, server.optimizer, server.keys, server.gradients_bytes),)

    def measures(self) -> Mapping[str, float]:
        """The workers have them."""
        return {}

    def sync(self) -> None:
        """Nothing to wait for."""

    def close(self) -> None:
        """Leaves once all do."""
        leave_rpc()
        devices.leave_group()
