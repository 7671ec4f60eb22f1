"""The program of a parameter server's worker: it pulls, computes its shard, and pushes."""

import itertools
import statistics
from collections.abc import Mapping

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed import rpc

from samestep.common.batch import Batch
from samestep.common.ledger import Exchange, Footprint
from samestep.common.program import Hardware, TrainState
from samestep.common.strategy import Run
from samestep.torch_impl import devices, weights
from samestep.torch_impl.exchanges import CountExchanges
from samestep.torch_impl.local_state import merge
from samestep.torch_impl.parameter_server import server
from samestep.torch_impl.parameter_server.pull_modes import PullMode
from samestep.torch_impl.rpc.group import leave_rpc, worker_name
from samestep.torch_impl.rpc.serving import CPU
from samestep.torch_impl.step import accumulate, mean_loss


class WorkerProgram:
    """A worker in training."""

    def __init__(self, run: Run, mode: PullMode, hardware: Hardware) -> None:
        self.hardware = hardware
        self._mode, self._loss = mode, mean_loss(run)
        self._rank = dist.get_rank()
        self._shard = self._rank, run.num_devices
        self._server = worker_name(run.num_devices)
        self._accumulation_steps = run.accumulation_steps
        self._step = self._gradients_bytes = self._pulled_bytes = 0
        self._losses: list[torch.Tensor] = []
        self._staleness: list[int] = []

    def step(self, batch: Batch) -> None:
        """Pulls what the shard needs, forward and backward, pushes the gradients; what stays here is updated here."""
        mode = self._mode
        inputs, _ = batch.rows(*self._shard)
        wanted = mode.wanted(torch.from_numpy(inputs))
        values, version = rpc.rpc_sync(self._server, server.pull, (wanted,))
        self._pulled_bytes = weights.nbytes(values)
        leaves = mode.accept(values)
        starts = itertools.count(0, len(inputs) // self._accumulation_steps)

        def forward_backward(inputs: np.ndarray, targets: np.ndarray, last: bool) -> torch.Tensor:
            with mode.exchange(last):
                logits = mode.logits(leaves, torch.from_numpy(inputs), next(starts))
                loss = self._loss(logits, torch.from_numpy(targets))
                loss.backward()
            return loss

        loss = accumulate(self._accumulation_steps, batch, self._shard, forward_backward)
        assert loss is not None, "every micro-batch of a worker has a loss"
        self._losses.append(loss)
        self._gradients_bytes = weights.nbytes(parameter.grad for parameter in mode.stage.parameters())
        pushed = (wanted, [leaf.grad for leaf in leaves], version)
        self._staleness.append(rpc.rpc_sync(self._server, server.push, (self._rank, pushed)))
        mode.update()
        self._step += 1

    def losses(self) -> list[float]:
        """The global losses since the last call: the server adds up those of all workers."""
        taken, self._losses = self._losses, []
        if not taken:
            return []
        return rpc.rpc_sync(self._server, server.add_losses, (self._rank, torch.stack(taken))).tolist()

    def predict(self, inputs: np.ndarray) -> np.ndarray:
        """Logits of rank 0, on what it pulls."""
        if self._rank > 0:
            return inputs
        x = torch.from_numpy(inputs)
        values, _ = rpc.rpc_sync(self._server, server.pull, (self._mode.wanted(x),))
        with torch.no_grad():
            return self._mode.logits(self._mode.accept(values), x).numpy()

    def state(self) -> TrainState:
        """The server's part, and on rank 0 what stays on the workers."""
        parts = [rpc.rpc_sync(self._server, server.snapshot, (self._step,))] if self._rank == 0 else []
        if self._mode.local_state is not None:
            parts.append(self._mode.local_state.snapshot(self._step))
        return merge(parts)

    def restore(self, state: TrainState) -> None:
        """Copies what stays on the workers in place; the server does so with its own part before it opens for pulls."""
        self._step = state.step
        if self._mode.local_state is not None:
            self._mode.local_state.restore(state)

    def observe(self, batch: Batch) -> tuple[Exchange, ...]:
        """Takes one more step; its collectives are counted, and calls are not among them."""
        with CountExchanges() as counted:
            self.step(batch)
        return counted.exchanges()

    def footprint(self) -> tuple[Footprint, ...]:
        """The tensors of this process; at their peak with the rows that were pulled."""
        if self._mode.local_state is not None:
            return (self._mode.local_state.footprint(CPU, self._gradients_bytes, self._pulled_bytes),)
        return (Footprint.uniform(str(CPU), self._gradients_bytes, 0, "tensors"),)  # a copy, whose gradients are pushed

    def measures(self) -> Mapping[str, float]:
        """How old the parameters were to which this worker's gradients were applied."""
        return {"staleness": statistics.fmean(self._staleness)}

    def sync(self) -> None:
        """Returns at once: a step is over when its calls have returned."""

    def close(self) -> None:
        """Leaves once all do."""
        leave_rpc()
        devices.leave_group()
