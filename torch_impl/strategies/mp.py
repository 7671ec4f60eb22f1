"""Naive model parallelism: one stage of the layers per rank, one batch at a time.

Replicated: nothing. Split: the layers, into contiguous stages of about equal FLOPs.
Sent: at each stage boundary, activations forward and their gradients back. At any time, all ranks but one wait.
Use it to hold a model that does not fit on one device, when nothing better is available; `pp` keeps the ranks busy.
"""

import itertools
import time
from collections.abc import Mapping, Sequence

import torch
import torch.distributed as dist

from samestep.common.strategy import Run
from samestep.common.workload.models.parameters import carry_gradients
from samestep.common.workload.pipeline_schedule import group_segments
from samestep.torch_impl.axes.pipe import Pipe, build_pipe
from samestep.torch_impl.devices import join_group, use_device
from samestep.torch_impl.models.inputs import Inputs
from samestep.torch_impl.models.segmented import Handed, tensors_of
from samestep.torch_impl.pipeline.stages import output_shapes
from samestep.torch_impl.program import TrainingProgram
from samestep.torch_impl.step import mean_loss


class VerticalPass:
    """Takes a batch through one rank's stage, and measures how long the rank waits for its neighbors."""

    def __init__(self, run: Run, pipe: Pipe) -> None:
        (self.index,), model = pipe.stages, run.workload.model
        self.pipe = pipe
        self.loss = mean_loss(run, pipe.context)
        self.shapes = output_shapes(run, len(pipe.stage_ranks), run.batch_size // run.passes)
        stages = group_segments(model.segments(), len(pipe.stage_ranks))
        # If everything before a boundary is frozen, no gradient comes back.
        self.takes_gradient, self.gives_gradient = (
            carry_gradients(model, itertools.chain(*stages[:end])) for end in (self.index, self.index + 1)
        )
        self.seconds = 0.0
        self.waited_seconds = 0.0

    def __call__(self, x: Inputs | Handed, y: torch.Tensor) -> torch.Tensor:
        """Runs forward when the previous stage is done, and backward when the next one is; returns the loss."""
        start = time.perf_counter()
        if not self.pipe.has_first:
            given = [self._receive(shape, self.index - 1) for shape in self.shapes[self.index - 1]]
            handed = tuple(each.requires_grad_(self.takes_gradient) for each in given)
            x = handed if len(handed) > 1 else handed[0]
        out = self.pipe.stages[self.index](x)
        if self.pipe.has_last:
            out = self.loss(out, y)
            (out * self.pipe.context.seed_gradient).backward()
        else:
            self._hand_on(tensors_of(out))
        for each in tensors_of(x) if self.takes_gradient else ():
            # An activation that nothing reads has no gradient, but the previous stage waits for one.
            gradient = torch.zeros_like(each) if each.grad is None else each.grad
            dist.send(gradient, self.pipe.stage_ranks[self.index - 1])
        self.seconds += time.perf_counter() - start
        return out if self.pipe.has_last else self.pipe.no_loss()

    def _hand_on(self, handed: Sequence[torch.Tensor]) -> None:
        """Sends activations to the next stage, and runs backward with the gradients that come back."""
        for each in handed:
            dist.send(each.detach(), self.pipe.stage_ranks[self.index + 1])
        if self.gives_gradient:
            back = [(each, self._receive(each.shape, self.index + 1)) for each in handed]
            if reached := [pair for pair in back if pair[0].requires_grad]:
                outputs, gradients = zip(*reached, strict=True)
                torch.autograd.backward(outputs, gradients)

    def _receive(self, shape: torch.Size, stage: int) -> torch.Tensor:
        received = torch.empty(shape, dtype=self.pipe.dtype, device=self.pipe.device)
        start = time.perf_counter()
        dist.recv(received, self.pipe.stage_ranks[stage])
        self.waited_seconds += time.perf_counter() - start
        return received

    def measures(self) -> Mapping[str, float]:
        """Returns the share of the time of all steps in which this rank waited for another."""
        return {"idle_share": self.waited_seconds / self.seconds}


def build(run: Run) -> TrainingProgram:
    """Builds the program of one rank."""
    device = use_device(run)
    hardware = join_group(run, device)
    pipe = build_pipe(run, device, tuple(range(run.num_devices)))
    vertical = VerticalPass(run, pipe)
    return TrainingProgram(run, pipe.parts(run, hardware, vertical, vertical.measures))
