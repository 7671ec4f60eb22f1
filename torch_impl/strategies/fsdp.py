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
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard

from samestep.common.strategy import Run
from samestep.common.workload.models.reached import may_skip
from samestep.torch_impl.devices import join_group, own_shard, use_device
from samestep.torch_impl.program import Parts, TrainingProgram, build_fresh_model
from samestep.torch_impl.reached import ShardedReach
from samestep.torch_impl.techniques.precision import gathering
from samestep.torch_impl.upstream import end_of_prediction


def find_blocks(run: Run, model: nn.Module) -> list[list[nn.Module]]:
    """Finds what is gathered together: the modules of each of the model's blocks.

    Args:
        run: What is trained; the spec has the blocks.
        model: The model, not yet sharded.
    """
    modules = [model.get_submodule(segment.name.replace("/", ".")) for segment in run.workload.model.blocks()]
    # A list of modules has no forward pass that could gather it; its members together have.
    return [list(module) if isinstance(module, nn.ModuleList) else [module] for module in modules]


def build_device_mesh(run: Run, device: torch.device) -> DeviceMesh:
    """Arranges the ranks along `shard`, and along `data` outside of it, if the mesh has that.

    Args:
        run: What is trained; its mesh has the sizes of the axes.
        device: The device of this process.
    """
    axes = ("data", "shard") if run.mesh.axis("data") > 1 else ("shard",)
    return init_device_mesh(device.type, tuple(map(run.mesh.axis, axes)), mesh_dim_names=axes)


def shard(run: Run, model: nn.Module, device: torch.device, reshard: bool) -> None:
    """Shards a model in place, block by block.

    Args:
        run: What is trained.
        model: The full model, on every rank; it may be on the meta device.
        device: Of this process.
        reshard: Whether a block is freed after its forward pass, and gathered again for its backward pass.
    """
    mesh = build_device_mesh(run, device)
    for block in [*find_blocks(run, model), model]:
        fully_shard(block, mesh=mesh, reshard_after_forward=reshard, mp_policy=gathering(run))
    model.register_forward_hook(free_after_prediction)


def free_after_prediction(model: FSDPModule, inputs: object, outputs: object) -> None:
    """Frees what a prediction gathered: no backward pass will follow, which would have done it.

    Args:
        model: The sharded model.
        inputs: Ignored; a forward hook is given them.
        outputs: Ignored, likewise.
    """
    if not torch.is_grad_enabled():
        end_of_prediction(model)


def build_sharded(run: Run, reshard: bool) -> TrainingProgram:
    """Builds the program of one rank.

    Args:
        run: What is trained.
        reshard: As in `shard`.
    """
    device = use_device(run)
    hardware = join_group(run, device)
    bare = build_fresh_model(run, device, distribute=lambda whole: shard(run, whole, device, reshard))
    model = cast(FSDPModule, bare)

    agreeing = ShardedReach([bare], device).exchange if may_skip(run.workload.model) else contextlib.nullcontext

    @contextlib.contextmanager
    def exchange(last: bool) -> Iterator[None]:
        model.set_requires_gradient_sync(last)
        with agreeing(last):
            yield

    parts = Parts(bare=bare, hardware=hardware, shard=own_shard(), averages_gradients=True, exchange=exchange)
    return TrainingProgram(run, parts)


def build(run: Run) -> TrainingProgram:
    """Builds the program of one rank."""
    return build_sharded(run, reshard=True)
