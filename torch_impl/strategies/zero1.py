"""ZeRO stage 1: DistributedDataParallel, with the optimizer's slots spread over the ranks.

Replicated: parameters, gradients. Split: the batch; the optimizer's slots, whole parameters to a rank.
Sent: the gradients, all-reduced; then each rank's updated parameters, broadcast: 3(N-1)/N of their bytes a rank in all.
Use it when the model and its gradients fit one device, but the optimizer's slots do not.
"""

import contextlib
import functools

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer

from common.config import RunConfig
from common.workload.table import Workload
from torch_impl.devices import describe_ranks, join_group, use_device
from torch_impl.optimizers import build_optimizer
from torch_impl.program import Parts, TrainingProgram, fresh_model
from torch_impl.strategies.ddp import wrapped
from torch_impl.upstream import rank_of_parameter


class OwnedSlots:
    """The slots of a parameter are on the rank that updates it."""

    def __init__(self, optimizer: ZeroRedundancyOptimizer) -> None:
        self._own = optimizer.optim
        self._owner = rank_of_parameter(optimizer)

    def held(self, parameter: nn.Parameter) -> dict[str, torch.Tensor] | None:
        """The inner optimizer's state of what this rank updates."""
        return self._own.state[parameter] if self._owner[parameter] == dist.get_rank() else None

    def whole(self, parameter: nn.Parameter, key: str) -> torch.Tensor:
        """From its owner to all."""
        held = self.held(parameter)
        slot = torch.empty_like(parameter) if held is None else held[key]
        dist.broadcast(slot, self._owner[parameter])
        return slot


def build(workload: Workload, config: RunConfig) -> TrainingProgram:
    """The program of one rank."""
    device = use_device(config, may_share=True)
    join_group(config, device)
    bare = fresh_model(workload, config, device)
    model = wrapped(bare, config)
    # As views of one bucket a rank's parameters take one broadcast.
    inner = functools.partial(build_optimizer, workload.optimizer(config))
    optimizer = ZeroRedundancyOptimizer(model.parameters(), inner, parameters_as_bucket_view=True)
    parts = Parts(
        model=model,
        bare=bare,
        optimizer=optimizer,
        device=device,
        shard=(dist.get_rank(), dist.get_world_size()),
        averaged_over=dist.get_world_size(),
        exchange=lambda last: contextlib.nullcontext() if last else model.no_sync(),
        sum_losses=lambda losses: dist.all_reduce(losses),
        slots=OwnedSlots(optimizer),
        device_note=describe_ranks(device),
    )
    return TrainingProgram(workload, config, parts)
