"""Fully sharded data parallelism (FSDP2), ZeRO stage 3: every rank keeps 1/N of everything.

Replicated: nothing; if the mesh has an axis `data` or `context`, each `shard` group along it is a replica (HSDP). Split: the
batch, along `context` by positions; parameters, gradients and optimizer state, each parameter along its first dimension.
Sent: each block's parameters, all-gathered in the forward and again in the backward pass; its gradients, reduce-scattered.
Use it when the model does not fit on one device; with a `data` axis, parameters are gathered within one machine only.
"""

import contextlib
import dataclasses
from typing import cast

from torch import nn
from torch.distributed.fsdp import FSDPModule

from samestep.common.strategy import Run
from samestep.torch_impl import sharded
from samestep.torch_impl.axes.context import exchange_positions
from samestep.torch_impl.axes.device_mesh import device_mesh, nested
from samestep.torch_impl.axes.expert import divided, exchange_tokens
from samestep.torch_impl.axes.shard import agree_on_reached, find_blocks, shard
from samestep.torch_impl.building import build_fresh_model
from samestep.torch_impl.devices import join_group, use_device
from samestep.torch_impl.models.experts import divide
from samestep.torch_impl.program import Parts, TrainingProgram
from samestep.torch_impl.step_context import StepContext
from samestep.torch_impl.techniques.applied import order_ranks


def build_sharded(run: Run, reshard: bool) -> TrainingProgram:
    """Builds the program of one rank.

    Args:
        run: The run.
        reshard: Whether a block's parameters are freed after its forward pass; see `shard`.
    """
    device = use_device(run)
    hardware = join_group(run, device)
    mesh, context = device_mesh(run, device), StepContext(run.mesh.only_axis)

    def distribute(whole: nn.Module) -> None:
        exchange_positions(run, whole, mesh)
        exchange_tokens(run, whole, mesh)
        shard(run, whole, mesh, reshard, find_blocks(run, whole))

    bare = build_fresh_model(run, device, context, distribute)

    def synchronize(last: bool) -> contextlib.AbstractContextManager[None]:
        cast(FSDPModule, bare).set_requires_gradient_sync(last)
        return contextlib.nullcontext()

    exchange = nested(synchronize, agree_on_reached(run, [bare], device))
    averages = not order_ranks(run, bare)
    parts = Parts(bare=bare, hardware=hardware, context=context, averages_gradients=averages, exchange=exchange)
    if run.mesh.axis("expert") > 1:
        mean = nested(divided(divide(bare)[1], run.mesh.axis("expert")), exchange)
        parts = dataclasses.replace(parts, exchange=mean, global_norm=sharded.total_norm)
    return TrainingProgram(run, parts)


def build(run: Run) -> TrainingProgram:
    """Builds the program of one rank."""
    return build_sharded(run, reshard=True)
