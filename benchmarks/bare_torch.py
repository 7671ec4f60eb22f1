"""The loops that one would write by hand in PyTorch; of ours only the model, its blocks and its stages."""

from collections.abc import Callable

import torch
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from samestep.common.batch import Batch
from samestep.common.program import Program
from samestep.common.strategy import Run
from samestep.common.workload.declared import load_model
from samestep.common.workload.models.own import OwnSpec
from samestep.torch_impl.devices import own_shard
from samestep.torch_impl.pipeline.stages import build_stages
from samestep.torch_impl.program import build_fresh_model
from samestep.torch_impl.rows.options import PipelineOptions
from samestep.torch_impl.strategies.fsdp import find_blocks

Step = Callable[[Batch], object]
CPU = torch.device("cpu")


def single(run: Run, program: Program) -> Step:
    """One process."""
    return _step(_model(run), run, 0, 1)


def ddp(run: Run, program: Program) -> Step:
    """The model under DDP; each rank takes its shard."""
    return _step(DistributedDataParallel(_model(run)), run, *own_shard())


def fsdp(run: Run, program: Program) -> Step:
    """FSDP2, block by block; each rank takes its shard."""
    model = build_fresh_model(run, CPU)
    for block in [*find_blocks(run, model), model]:
        fully_shard(block)
    return _step(model, run, *own_shard())


def pp(run: Run[PipelineOptions], program: Program) -> Step:
    """GPipe over one stage a rank."""
    rank, count = own_shard()
    (stage,) = build_stages(run, CPU, range(count), rank).values()
    optimizer = _optimizer(stage, run)
    schedule = ScheduleGPipe(PipelineStage(stage, rank, count, CPU), run.options.microbatches, loss_fn=_loss)

    def step(batch: Batch) -> object:
        inputs, targets = batch.rows(0, 1)
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
    """The workload's model, or what the user's function returns, without anything of ours around it."""
    if not isinstance(spec := run.workload.model, OwnSpec):
        return build_fresh_model(run, CPU)
    built = load_model(spec.described.source, "torch").torch()
    return built.to(getattr(torch, run.dtype))


def _step(model: nn.Module, run: Run, rank: int, count: int) -> Step:
    optimizer = _optimizer(model, run)

    def step(batch: Batch) -> torch.Tensor:
        inputs, targets = batch.rows(rank, count)
        optimizer.zero_grad()
        loss = _loss(model(torch.from_numpy(inputs)), torch.from_numpy(targets))
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def _loss(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(logits.flatten(0, -2), targets.flatten())


def _optimizer(model: nn.Module, run: Run) -> torch.optim.Optimizer:
    spec = run.optimizer
    if spec.name == "sgd":
        return torch.optim.SGD(model.parameters(), lr=spec.learning_rate, momentum=spec.momentum)
    return torch.optim.AdamW(model.parameters(), lr=spec.learning_rate, weight_decay=spec.weight_decay)
