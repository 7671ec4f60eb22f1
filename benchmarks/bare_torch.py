"""The loops that one would write by hand in PyTorch, without any of ours around them but the model and its cut."""

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from common.batch import Batch
from common.config import RunConfig
from common.strategy import Program
from common.workload.table import Workload
from torch_impl.program import fresh_model
from torch_impl.stages import build_stages
from torch_impl.strategies.fsdp import blocks

Step = Callable[[Batch], object]
CPU = torch.device("cpu")


def single(workload: Workload, config: RunConfig, program: Program) -> Step:
    """One process."""
    return _step(fresh_model(workload, config, CPU), workload, config, 0, 1)


def ddp(workload: Workload, config: RunConfig, program: Program) -> Step:
    """The model under DDP; each rank takes its shard."""
    model = DistributedDataParallel(fresh_model(workload, config, CPU))
    return _step(model, workload, config, dist.get_rank(), dist.get_world_size())


def fsdp(workload: Workload, config: RunConfig, program: Program) -> Step:
    """FSDP2, block by block; each rank takes its shard."""
    model = fresh_model(workload, config, CPU)
    for block in blocks(workload, model):
        fully_shard(block)
    fully_shard(model)
    return _step(model, workload, config, dist.get_rank(), dist.get_world_size())


def pp(workload: Workload, config: RunConfig, program: Program) -> Step:
    """GPipe over one stage a rank."""
    rank, count = dist.get_rank(), dist.get_world_size()
    (stage,) = build_stages(workload, config, CPU, range(count), rank).values()
    optimizer = _optimizer(stage, workload, config)
    microbatches = int(config.options["microbatches"] or 1)
    schedule = ScheduleGPipe(PipelineStage(stage, rank, count, CPU), microbatches, loss_fn=_loss)

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


def _step(model: nn.Module, workload: Workload, config: RunConfig, rank: int, count: int) -> Step:
    optimizer = _optimizer(model, workload, config)

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


def _optimizer(model: nn.Module, workload: Workload, config: RunConfig) -> torch.optim.Optimizer:
    spec = workload.optimizer(config)
    if spec.name == "sgd":
        return torch.optim.SGD(model.parameters(), lr=spec.learning_rate, momentum=spec.momentum)
    return torch.optim.AdamW(model.parameters(), lr=spec.learning_rate, weight_decay=spec.weight_decay)
