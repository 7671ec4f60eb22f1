"""Naive vertical split: one stage of the layers per rank, one batch at a time.

Replicated: nothing. Split: the layers, into contiguous stages of about equal FLOPs.
Sent: at each boundary the activations forward and their gradients back; all ranks but one wait at any time.
Use it to hold a model that fits no single device, when nothing better can be had: `pp` keeps the ranks busy.
"""

import time
from collections.abc import Mapping

import torch
import torch.distributed as dist

from common.config import RunConfig
from common.evidence.laws.pipelined import holders_of
from common.workload.table import Workload
from torch_impl.devices import join_group, use_device
from torch_impl.optimizers import build_optimizer
from torch_impl.pipeline_program import Pipe, PipelineParts, PipelineProgram, mean_loss
from torch_impl.stages import boundaries, build_stages, named_weights


class Vertical:
    """The stage of one rank, its neighbours, and the time spent waiting for them."""

    def __init__(self, workload: Workload, config: RunConfig, pipe: Pipe) -> None:
        (self.index,) = pipe.stages
        self.pipe = pipe
        self.loss = mean_loss(workload, config)
        self.dtype = getattr(torch, config.dtype)
        rows = (config.batch_size or 0) // config.techniques.micro_batches
        self.shapes = boundaries(workload, len(pipe.holders), rows)
        self.seconds = 0.0
        self.waited_seconds = 0.0

    def __call__(self, x: torch.Tensor | None, y: torch.Tensor | None) -> torch.Tensor | None:
        """Forward when the stage before is done, backward when the stage behind is."""
        start = time.perf_counter()
        if x is None:
            x = self._received(self.shapes[self.index - 1], self.index - 1).requires_grad_()
        out = self.pipe.stages[self.index](x)
        if y is not None:
            out = self.loss(out, y)
            out.backward()
        else:
            dist.send(out.detach(), self.pipe.holders[self.index + 1])
            out.backward(self._received(out.shape, self.index + 1))
        if x.grad is not None:
            dist.send(x.grad, self.pipe.holders[self.index - 1])
        self.seconds += time.perf_counter() - start
        return None if y is None else out

    def _received(self, shape: torch.Size, stage: int) -> torch.Tensor:
        received = torch.empty(shape, dtype=self.dtype, device=self.pipe.device)
        start = time.perf_counter()
        dist.recv(received, self.pipe.holders[stage])
        self.waited_seconds += time.perf_counter() - start
        return received

    def measures(self) -> Mapping[str, float]:
        """The share of all its steps in which this rank waited for another."""
        return {"idle_share": self.waited_seconds / self.seconds}


def build(workload: Workload, config: RunConfig) -> PipelineProgram:
    """The program of one rank."""
    device = use_device(config)
    join_group(config, device)
    holders = holders_of(config)
    pipe = Pipe(build_stages(workload, config, device, holders, dist.get_rank()), holders, device)
    parameters = [weight.parameter for weight in named_weights(pipe.stages).values()]
    vertical = Vertical(workload, config, pipe)
    parts = PipelineParts(
        pipe=pipe,
        optimizer=build_optimizer(workload.optimizer(config), parameters),
        forward_backward=vertical,
        measures=vertical.measures,
    )
    return PipelineProgram(workload, config, parts)
