"""Loops as a user would write them by hand in PyTorch; only the model, its blocks, its stages and the optimizer are ours."""

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from samestep.common.batch import Batch
from samestep.common.program import Program
from samestep.common.strategy import Run
from samestep.common.workload.declared import load_model
from samestep.torch_impl.axes.shard import find_blocks
from samestep.torch_impl.building import build_fresh_model
from samestep.torch_impl.devices import own_part
from samestep.torch_impl.optimizers import build_optimizer
from samestep.torch_impl.pipeline.stages import build_stages
from samestep.torch_impl.rows.options import PipelineOptions
from samestep.torch_impl.step_context import StepContext

Step = Callable[[Batch], object]
CPU = torch.device("cpu")


def single(run: Run, program: Program) -> Step:
    """Returns a loop in one process."""
    return _step(_model(run), run)


def ddp(run: Run, program: Program) -> Step:
    """Returns a loop under DDP; each rank takes its shard."""
    return _step(DistributedDataParallel(_model(run)), run)


def fsdp(run: Run, program: Program) -> Step:
    """Returns a loop under FSDP2, block by block; each rank takes its shard."""
    model = build_fresh_model(run, CPU, StepContext())
    for block in [*find_blocks(run, model), model]:
        fully_shard(block)
    return _step(model, run)


def pp(run: Run[PipelineOptions], program: Program) -> Step:
    """Returns a loop under GPipe, with one stage per rank."""
    rank, count = dist.get_rank(), run.num_devices
    (stage,) = build_stages(run, CPU, StepContext(), range(count), rank).values()
    optimizer = build_optimizer(run.optimizer, stage.parameters())
    schedule = ScheduleGPipe(PipelineStage(stage, rank, count, CPU), run.options.microbatches, loss_fn=_loss)

    def step(batch: Batch) -> object:
        inputs, targets = batch.rows()
        optimizer.zero_grad()
        losses: list[torch.Tensor] = []
        if rank == 0:
            schedule.step(torch.from_numpy(inputs), return_outputs=False)
        elif rank == count - 1:
            schedule.step(target=torch.from_numpy(targets), losses=losses, return_outputs=False)
        else:
            schedule.step(return_outputs=False)
        optimizer.step()
        return torch.stack(losses).detach().mean() if losses else 0.0

    return step


def _model(run: Run) -> nn.Module:
    """Returns the workload's model, or the one that the user's function returns, without any of our wrappers."""
    if not (source := run.workload.model.facts.source):
        return build_fresh_model(run, CPU, StepContext())
    built = load_model(source, "torch").torch()
    return built.to(getattr(torch, run.dtype))


def _step(model: nn.Module, run: Run) -> Step:
    optimizer = build_optimizer(run.optimizer, model.parameters())

    def step(batch: Batch) -> torch.Tensor:
        inputs, targets = batch.rows(own_part(run))
        optimizer.zero_grad()
        loss = _loss(model(torch.from_numpy(inputs)), torch.from_numpy(targets))
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def _loss(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(logits.flatten(0, -2), targets.flatten())
