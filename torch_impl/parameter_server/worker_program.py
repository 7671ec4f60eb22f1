"""The program of a worker, which pulls parameters, computes on its shard, and pushes gradients."""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed import rpc

from samestep.common.batch import Batch, BatchPart
from samestep.common.ledger import Footprint, Send
from samestep.common.program import Hardware, PlainProgram, TrainState
from samestep.common.strategy import Run
from samestep.torch_impl import devices, weights
from samestep.torch_impl.local_state import merge
from samestep.torch_impl.models.inputs import as_inputs
from samestep.torch_impl.models.outputs import main_outputs
from samestep.torch_impl.observing.activations import follow_activations
from samestep.torch_impl.observing.exchanges import Observer
from samestep.torch_impl.parameter_server import server
from samestep.torch_impl.parameter_server.modes import PullEverything, PullRows
from samestep.torch_impl.rpc.group import leave_rpc, worker_name
from samestep.torch_impl.step import accumulation, mean_loss
from samestep.torch_impl.step_context import StepContext


class WorkerProgram(PlainProgram):
    """A worker of a parameter server, in training."""

    def __init__(
        self,
        run: Run,
        mode: PullEverything | PullRows,
        context: StepContext,
        workers: dist.ProcessGroup,
        hardware: Hardware,
    ) -> None:
        self.hardware = hardware
        self._run, self._mode, self._context, self._loss = run, mode, context, mean_loss(run, context)
        self._workers = workers
        self._rank = dist.get_rank()
        self._part = BatchPart.of(run.mesh, self._rank)
        self._accumulate = accumulation(run, context, self._part)
        self._server = worker_name(run.num_devices)
        self._step = self._gradients_bytes = self._pulled_bytes = self._activations_bytes = 0
        self._pushes = self._staleness = 0  # the sum over all pushes
        self._losses: list[torch.Tensor] = []
        self._sends: tuple[Send, ...] = ()

    def step(self, batch: Batch) -> None:
        """Pulls what the shard needs, runs forward and backward, pushes the gradients, and updates what stays on the worker."""
        mode = self._mode
        inputs, _ = batch.rows(self._part)
        wanted = mode.wanted(as_inputs(inputs))
        self._context.recorder.phase = "forward"
        values, version = rpc.rpc_sync(self._server, server.pull_for_step, (wanted,))
        self._record("pull", values)
        self._pulled_bytes = weights.nbytes(values)
        leaves = mode.accept(values)
        starts = itertools.count(0, len(inputs) // self._run.passes)

        def forward_backward(inputs: np.ndarray, targets: np.ndarray, last: bool) -> torch.Tensor:
            with mode.exchange(last):
                logits = mode.logits(leaves, as_inputs(inputs), next(starts))
                loss = self._loss(logits, torch.from_numpy(targets))
                loss.backward()
            return loss

        self._losses.append(self._accumulate(batch, forward_backward))
        self._gradients_bytes = weights.nbytes(parameter.grad for parameter in mode.stage.parameters())
        gradients = [leaf.grad for leaf in leaves]
        self._record("push", [gradient for gradient in gradients if gradient is not None])
        self._staleness += rpc.rpc_sync(self._server, server.push, (self._rank, (wanted, gradients, version)))
        self._pushes += 1
        self._step += 1
        mode.update(self._run.optimizer_at(self._step).learning_rate)

    def _record(self, operation: str, tensors: Sequence[torch.Tensor]) -> None:
        """Records what moves between this worker and the server; ids of rows are not counted."""
        self._context.recorder.add(operation, tensors, "data", self._run.num_devices, str(self._run.num_devices))

    def losses(self) -> list[float]:
        """Returns the global losses since the last call, summed over all workers but not the server.

        The windows of the server continue meanwhile, so what it sent for a sum would count in its steps.
        """
        taken, self._losses = self._losses, []
        return self._sum(torch.stack(taken)) if taken else []

    def agree(self, value: float) -> float:
        """Returns the mean over workers; like the losses, it is summed without the server."""
        return self._sum(torch.tensor([value], dtype=torch.float64))[0] / self._run.num_devices

    def _sum(self, numbers: torch.Tensor) -> list[float]:
        dist.all_reduce(numbers, group=self._workers)
        return numbers.tolist()

    def predict(self, inputs: np.ndarray) -> np.ndarray:
        """Returns logits on rank 0, computed with pulled parameters and its own buffers."""
        if self._rank > 0:
            return inputs
        x = as_inputs(inputs)
        values, _ = rpc.rpc_sync(self._server, server.pull, (self._mode.wanted(x),))
        self._mode.stage.eval()
        with torch.no_grad():
            logits = main_outputs(self._mode.logits(self._mode.accept(values), x)).numpy()
        self._mode.stage.train()
        return logits

    def state(self) -> TrainState:
        """Returns the state of the worker, on rank 0 with the server's part; the server's buffers never change."""
        parts = [rpc.rpc_sync(self._server, server.snapshot, (self._step,))] if self._rank == 0 else []
        return merge([self._mode.local_state.snapshot(self._step), *parts])

    def restore(self, state: TrainState) -> None:
        """Copies what stays on the workers in place, and waits until the server has done the same with its part."""
        self._step = state.step
        self._mode.local_state.restore(state)
        rpc.rpc_sync(self._server, server.await_restored)

    def observe(self, batch: Batch) -> None:
        """Takes the observed step; collectives among workers are recorded when dispatched, calls when made."""
        self._context.recorder.start()
        with Observer(self._context.recorder), follow_activations(self._mode.stage) as kept:
            self.step(batch)
        self._activations_bytes = kept.peak_bytes
        self._sends = self._context.recorder.stop()

    def sends(self) -> tuple[Send, ...]:
        """Returns what this worker pulled, pushed and exchanged with other workers."""
        return self._sends

    def footprint(self) -> tuple[Footprint, ...]:
        """Returns the tensors of this process."""
        own = self._mode.footprint(self._gradients_bytes, self._pulled_bytes)
        return (dataclasses.replace(own, activations_bytes=self._activations_bytes),)

    def measures(self) -> Mapping[str, float]:
        """Returns the mean age of the parameters to which this worker's gradients were applied."""
        return {"staleness": self._staleness / self._pushes}

    def close(self) -> None:
        """Leaves the group together with all other processes."""
        leave_rpc()
        devices.leave_group()
