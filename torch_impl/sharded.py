"""Tensors whose parts lie on several ranks: DTensors, next to plain ones that every rank holds whole."""

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Shard

from samestep.torch_impl.upstream import end_of_prediction

if TYPE_CHECKING:
    from torch.distributed.fsdp import FSDPModule


def full_tensor(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the whole tensor, gathered from wherever its parts are."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def local_part(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the part of a tensor that this rank holds."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def cut(module: nn.Module, name: str, mesh: DeviceMesh, axis: str, dim: int) -> None:
    """Leaves this rank its part of a parameter, in place; what other axes have cut stays cut.

    Args:
        module: The module that has the parameter itself.
        name: Its name there.
        mesh: All ranks.
        axis: The axis of the ranks that have the other parts, which is ahead of those that the parameter is cut along.
        dim: The dim of the tensor that is cut, into equal parts.
    """
    parameter, along = module.get_parameter(name), mesh[axis]
    axes, placements = (axis,), [Shard(dim)]
    if isinstance(parameter, DTensor):
        axes, placements = (*axes, *(parameter.device_mesh.mesh_dim_names or ())), [*placements, *parameter.placements]
    own = local_part(parameter.detach()).chunk(along.size(), dim)[along.get_local_rank()].contiguous()
    sharded = DTensor.from_local(own, mesh[axes] if len(axes) > 1 else along, placements, run_check=False)
    module.register_parameter(name, nn.Parameter(sharded))


def total_norm(tensors: list[torch.Tensor]) -> torch.Tensor:
    """Returns the norm of all tensors together, each sharded or whole."""
    return torch.stack([full_tensor(torch.linalg.vector_norm(tensor)) for tensor in tensors]).square().sum().sqrt()


def copy_shard(target: torch.Tensor, value: torch.Tensor) -> None:
    """Copies a whole value, which every rank has, into a tensor: each rank its part, and nothing is sent.

    (Not by `distribute_tensor`, which in torch 2.13 cannot express a dimension that is cut twice, first along a tensor
    axis and then, within each part, along a shard axis.)

    Args:
        target: The tensor to write in place, sharded or whole.
        value: The full value, of the full target's shape.
    """
    for dim, (start, size) in enumerate(local_extent(target)):
        value = value.narrow(dim, start, size)
    local_part(target).copy_(value)


def local_extent(tensor: torch.Tensor) -> list[tuple[int, int]]:
    """Returns where the part that this rank holds begins in each dim of the whole tensor, and its size there."""
    extent = [(0, size) for size in tensor.shape]
    if isinstance(tensor, DTensor):
        mesh = tensor.device_mesh
        for axis in reversed(range(mesh.ndim)):  # the axis cut first is the last one
            placement: Any = tensor.placements[axis]
            if not placement.is_replicate():
                start, size = extent[placement.dim]
                part = math.ceil(size / mesh.size(axis))
                skipped = min(size, part * mesh.get_local_rank(axis))
                extent[placement.dim] = (start + skipped, min(part, size - skipped))
    return extent


def free_after_prediction(model: "FSDPModule", inputs: object, outputs: object) -> None:
    """Frees what a prediction gathered: no backward pass will follow, which would have done it.

    Args:
        model: A sharded or replicated model.
        inputs: Ignored; a forward hook is given them.
        outputs: Ignored, likewise.
    """
    if not torch.is_grad_enabled():
        end_of_prediction(model)
