"""Fully sharded data parallelism (FSDP2), ZeRO stage 3: every rank keeps 1/N of everything.

Replicated: nothing; over the axis `data`, if the mesh has one, what a `shard` group holds (HSDP). Split: the batch;
parameters, gradients and optimizer, each parameter along its first dimension.
Sent: each block's parameters, gathered in the forward and again in the backward pass; its gradients, reduce-scattered.
Use it when the model does not fit one device; a `data` axis keeps the gathering within one machine.
"""

import contextlib
from collections.abc import Iterator
from typing import cast

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard

from common.config import RunConfig
from common.mesh import Mesh
from common.workload.table import Workload
from torch_impl.devices import join_group, use_device
from torch_impl.optimizers import build_optimizer
from torch_impl.program import Parts, TrainingProgram, fresh_model
from torch_impl.sharded import place, whole
from torch_impl.upstream import end_of_prediction


def blocks(workload: Workload, model: nn.Module) -> list[list[nn.Module]]:
    """What is gathered together: the modules of each of the model's cuts."""
    modules = [model.get_submodule(cut.name.replace("/", ".")) for cut in workload.model.cuts()]
    # A list of modules has no forward pass that could gather it; its members together have.
    return [list(module) if isinstance(module, nn.ModuleList) else [module] for module in modules]


def device_mesh(config: RunConfig, device: torch.device) -> DeviceMesh:
    """Ranks along `shard`; along `data` outside of it, if the mesh has that."""
    mesh = Mesh.parse(config.mesh or "shard=1")
    axes = ["data", "shard"] if mesh.axis("data") > 1 else ["shard"]
    return init_device_mesh(device.type, tuple(map(mesh.axis, axes)), mesh_dim_names=tuple(axes))


def shard(workload: Workload, config: RunConfig, model: nn.Module, device: torch.device, reshard: bool) -> FSDPModule:
    """Shards a model in place, block by block.

    Args:
        workload: What is trained.
        config: A checked configuration.
        model: Whole, on every rank.
        device: Of this process.
        reshard: Whether a block is freed after its forward pass, and gathered again for its backward pass.
    """
    mesh = device_mesh(config, device)
    for block in blocks(workload, model):
        fully_shard(block, mesh=mesh, reshard_after_forward=reshard)
    fully_shard(model, mesh=mesh, reshard_after_forward=reshard)
    model.register_forward_hook(free_after_prediction)
    return cast(FSDPModule, model)


def free_after_prediction(model: FSDPModule, inputs: object, outputs: object) -> None:
    """No backward pass will follow, which would have done it."""
    if not torch.is_grad_enabled():
        end_of_prediction(model)


def sharded_parts(workload: Workload, config: RunConfig, model: FSDPModule, device: torch.device) -> Parts:
    """The parts of a step on a sharded model."""

    @contextlib.contextmanager
    def exchange(last: bool) -> Iterator[None]:
        model.set_requires_gradient_sync(last)
        yield

    return Parts(
        model=model,
        bare=model,
        optimizer=build_optimizer(workload.optimizer(config), model.parameters()),
        device=device,
        shard=(dist.get_rank(), dist.get_world_size()),
        averaged_over=dist.get_world_size(),
        exchange=exchange,
        global_norm=lambda gradients: whole(nn.utils.get_total_norm(gradients)),
        sum_losses=lambda losses: dist.all_reduce(losses),
        whole=whole,
        place=place,
        device_note="one process per device",
    )


def build(workload: Workload, config: RunConfig) -> TrainingProgram:
    """The program of one rank."""
    device = use_device(config)
    join_group(config, device)
    model = shard(workload, config, fresh_model(workload, config, device), device, reshard=True)
    return TrainingProgram(workload, config, sharded_parts(workload, config, model, device))
