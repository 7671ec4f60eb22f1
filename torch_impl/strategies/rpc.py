"""RPC: the stages of a model live on RPC workers, one of which drives them all; autograd runs across the calls.

Replicated: nothing. Split: the layers, into contiguous stages of about equal FLOPs.
Sent: activations from worker to worker as arguments, gradients back by distributed autograd, and calls for every update.
Use it to see how model parallelism was written before pipelines had an API; it takes one batch at a time, like `mp`.
"""

from functools import reduce

import numpy as np
import torch
import torch.distributed.autograd as dist_autograd
from torch.distributed import rpc
from torch.distributed.optim import DistributedOptimizer

from samestep.common.batch import WHOLE, Batch
from samestep.common.ledger import Footprint, Send
from samestep.common.program import Hardware, PlainProgram, TrainState
from samestep.common.strategy import Run
from samestep.common.workload.pipeline_schedule import group_segments
from samestep.common.workload.reductions import correction
from samestep.torch_impl.devices import use_device
from samestep.torch_impl.local_state import merge
from samestep.torch_impl.models.inputs import as_inputs
from samestep.torch_impl.pipeline.stages import build_stage
from samestep.torch_impl.rpc import worker_stages as stages
from samestep.torch_impl.rpc.group import CPU, Served, ServingProgram, join_rpc, leave_rpc, own_rank, worker_name
from samestep.torch_impl.step import accumulation, mean_loss
from samestep.torch_impl.step_context import StepContext

HARDWARE = Hardware(note="one process per device", backend="tensorpipe")


class DriverProgram(PlainProgram):
    """The program of rank 0, which takes every step by calling all workers, including itself."""

    def __init__(self, run: Run, served: Served, context: StepContext) -> None:
        self.hardware, self._run, self._served = HARDWARE, run, served
        self._workers = [worker_name(rank) for rank in range(run.num_devices)]
        params = [rref for worker in self._workers for rref in rpc.rpc_sync(worker, stages.parameters)]
        self._optimizer = DistributedOptimizer(stages.local_optimizer, params)
        self._accumulate, self._step, self._losses = accumulation(run, context, WHOLE), 0, list[torch.Tensor]()

    def step(self, batch: Batch) -> None:
        """Runs forward from worker to worker, backward the same way, and updates all parameters."""
        losses: list[torch.Tensor] = []
        share = correction(self._run.workload.model, self._run.framework, batch)  # the last worker sees no batch
        with dist_autograd.context() as context:

            def forward_backward(inputs: np.ndarray, targets: np.ndarray, last: bool) -> torch.Tensor:
                losses.append(stages.call_all(self._workers, as_inputs(inputs), torch.from_numpy(targets)) * share)
                if last:  # a context goes backward once, from all its losses (torch 2.13)
                    dist_autograd.backward(context, losses)
                return losses[-1]

            self._losses.append(self._accumulate(batch, forward_backward))
            self._optimizer.step(context)
        self._step += 1

    def losses(self) -> list[float]:
        """Returns the losses since the last call."""
        taken, self._losses = self._losses, []
        return torch.stack(taken).tolist() if taken else []

    def predict(self, inputs: np.ndarray) -> np.ndarray:
        """Returns logits, computed stage by stage."""
        return reduce(lambda x, to: rpc.rpc_sync(to, stages.predict, (x,)), self._workers, as_inputs(inputs)).numpy()

    def state(self) -> TrainState:
        """Returns the state of all workers, merged."""
        return merge(rpc.rpc_sync(worker, stages.snapshot, (self._step,)) for worker in self._workers)

    def restore(self, state: TrainState) -> None:
        """Copies this process's part of the state in place, and waits until every other worker has done the same."""
        self._step = state.step
        self._served.restore(state)
        stages.await_restored(self._workers)

    def sends(self) -> tuple[Send, ...]:
        """Returns the tensors that calls sent from this process."""
        return self._served.sends

    def footprint(self) -> tuple[Footprint, ...]:
        """Returns the tensors of this process."""
        return (self._served.footprint(),)

    def sync(self) -> None:
        """Waits for answers that no step waits for; otherwise their bytes would not be counted."""
        stages.await_answers()

    def close(self) -> None:
        """Leaves the group together with all other processes."""
        leave_rpc()


def build(run: Run) -> DriverProgram | ServingProgram:
    """Builds the program of one process."""
    use_device(run)  # sets the number of threads
    segments = group_segments(run.workload.model.segments(), run.num_devices)[own_rank()]
    context = StepContext(run.mesh.only_axis)
    stage = build_stage(run, CPU, context, segments, contiguous=False)
    stages.serve(stages.WorkerStage(stage, mean_loss(run, context), served := Served(run, stage, context.recorder)))
    join_rpc(run)
    return ServingProgram(served, HARDWARE) if own_rank() else DriverProgram(run, served, context)
