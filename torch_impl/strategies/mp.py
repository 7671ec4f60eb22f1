"""Naive vertical split: one stage of the layers per rank, one batch at a time.

Replicated: nothing. Split: the layers, into contiguous stages of about equal FLOPs.
Sent: at each boundary the activations forward and their gradients back; all ranks but one wait at any time.
Use it to hold a model that fits no single device, when nothing better can be had: `pp` keeps the ranks busy.
"""

import time
from collections.abc import Mapping

import torch
import torch.distributed as dist

from samestep.common.strategy import Run
from samestep.common.workload.models.reached import carry_gradients
from samestep.common.workload.pipeline import group_segments
from samestep.torch_impl.devices import join_group, use_device
from samestep.torch_impl.micro_batch import MICRO_BATCH
from samestep.torch_impl.models.inputs import Inputs
from samestep.torch_impl.pipeline.pipe import Pipe, build_pipe
from samestep.torch_impl.pipeline.stages import output_shapes
from samestep.torch_impl.program import TrainingProgram
from samestep.torch_impl.step import mean_loss


class VerticalPass:
    """The pass of a batch through one rank's stage, and the time that the rank spends waiting for its neighbours."""

    def __init__(self, run: Run, pipe: Pipe) -> None:
        (self.index,), model = pipe.stages, run.workload.model
        self.pipe = pipe
        self.loss = mean_loss(run)
        self.shapes = output_shapes(run, len(pipe.stage_ranks), run.batch_size // run.accumulation_steps)
        before = [
            each for stage in group_segments(model.segments(), len(pipe.stage_ranks))[: self.index] for each in stage
        ]
        self.takes_gradient = carry_gradients(model, before)
        self.seconds = 0.0
        self.waited_seconds = 0.0

    def __call__(self, x: Inputs, y: torch.Tensor) -> torch.Tensor:
        """Goes forward when the stage before is done, and backward when the stage behind is."""
        start = time.perf_counter()
        if not self.pipe.has_first:
            x = self._receive(self.shapes[self.index - 1], self.index - 1).requires_grad_(self.takes_gradient)
        out = self.pipe.stages[self.index](x)
        if self.pipe.has_last:
            out = self.loss(out, y)
            (out * MICRO_BATCH.loss_scale).backward()
        else:
            dist.send(out.detach(), self.pipe.stage_ranks[self.index + 1])
            if out.requires_grad:  # or all up to here is frozen, and no gradient comes back
                out.backward(self._receive(out.shape, self.index + 1))
        if isinstance(x, torch.Tensor) and x.grad is not None:
            dist.send(x.grad, self.pipe.stage_ranks[self.index - 1])
        self.seconds += time.perf_counter() - start
        return out if self.pipe.has_last else self.pipe.no_loss()

    def _receive(self, shape: torch.Size, stage: int) -> torch.Tensor:
        received = torch.empty(shape, dtype=self.pipe.dtype, device=self.pipe.device)
        start = time.perf_counter()
        dist.recv(received, self.pipe.stage_ranks[stage])
        self.waited_seconds += time.perf_counter() - start
        return received

    def measures(self) -> Mapping[str, float]:
        """Computes the share of all its steps in which this rank waited for another."""
        return {"idle_share": self.waited_seconds / self.seconds}


def build(run: Run) -> TrainingProgram:
    """Builds the program of one rank."""
    device = use_device(run)
    hardware = join_group(run, device)
    pipe = build_pipe(run, device, tuple(range(run.num_devices)))
    vertical = VerticalPass(run, pipe)
    return TrainingProgram(run, pipe.parts(run, hardware, vertical, vertical.measures))
