"""DistributedDataParallel: one process per device, each with the whole model and a shard of the batch.

Replicated: parameters, gradients, optimizer. Split: the batch.
Sent: the gradients, all-reduced in buckets while the backward pass still runs: 2(N-1)/N of their bytes a rank.
Use it when the model fits one device and there are several.
"""

import contextlib
from collections.abc import Mapping

import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from common.config import RunConfig
from common.workload.table import Workload
from torch_impl.devices import describe_ranks, join_group, use_device
from torch_impl.optimizers import build_optimizer
from torch_impl.program import Parts, TrainingProgram, fresh_model
from torch_impl.upstream import ddp_logging_data

MEBIBYTE = 1 << 20


def wrapped(bare: nn.Module, config: RunConfig) -> DistributedDataParallel:
    """The model under DDP; the gradients are views of the buckets, so that there is no second copy of them."""
    cap = config.options.get("bucket_bytes")
    return DistributedDataParallel(
        bare, gradient_as_bucket_view=True, bucket_cap_mb=None if cap is None else int(cap) / MEBIBYTE
    )


def overlap(model: DistributedDataParallel) -> Mapping[str, float]:
    """How long the gradients were on their way, and how much of that hid behind the backward pass, in seconds."""
    logged = ddp_logging_data(model)  # without the times where no bucket was ever sent
    nanoseconds = {
        "communication_seconds": logged.get("avg_backward_comm_time", 0.0),
        "overlap_seconds": logged.get("avg_backward_compute_comm_overlap_time", 0.0),
    }
    return {name: value / 1e9 for name, value in nanoseconds.items()}


def build(workload: Workload, config: RunConfig) -> TrainingProgram:
    """The program of one rank."""
    device = use_device(config, may_share=True)
    join_group(config, device)
    bare = fresh_model(workload, config, device)
    model = wrapped(bare, config)
    parts = Parts(
        model=model,
        bare=bare,
        optimizer=build_optimizer(workload.optimizer(config), model.parameters()),
        device=device,
        shard=(dist.get_rank(), dist.get_world_size()),
        averaged_over=dist.get_world_size(),
        exchange=lambda last: contextlib.nullcontext() if last else model.no_sync(),
        sum_losses=lambda losses: dist.all_reduce(losses),
        measures=lambda: overlap(model),
        device_note=describe_ranks(device),
    )
    return TrainingProgram(workload, config, parts)
