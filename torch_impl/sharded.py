"""Tensors that are sharded over ranks (DTensors), handled together with plain tensors that every rank holds whole."""

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
    """Returns the whole tensor, gathered from all ranks if it is sharded."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def local_part(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the part of a tensor that this rank holds."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def cut(module: nn.Module, name: str, mesh: DeviceMesh, axis: str, dim: int) -> None:
    """Replaces a parameter by this rank's part of it, in place; dims that other axes have split stay split.

    Args:
        module: The module that has the parameter itself.
        name: The name of the parameter in the module.
        mesh: All ranks.
        axis: The axis of the ranks that have the other parts; it precedes the axes along which the parameter is already split.
        dim: The dim of the tensor to split into equal parts.
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
    """Copies a whole value, which every rank has, into a tensor; each rank copies its part, and nothing is sent.

    `distribute_tensor` cannot express a dim that is split twice, first along a tensor axis and then, within each part,
    along a shard axis (torch 2.13).

    Args:
        target: The tensor to write in place, sharded or whole.
        value: The whole value, with the shape of the whole target.
    """
    for dim, (start, size) in enumerate(local_extent(target)):
        value = value.narrow(dim, start, size)
    local_part(target).copy_(value)


def local_extent(tensor: torch.Tensor) -> list[tuple[int, int]]:
    """Returns, for each dim of the whole tensor, where this rank's part begins and its size."""
    extent = [(0, size) for size in tensor.shape]
    if isinstance(tensor, DTensor):
        mesh = tensor.device_mesh
        for axis in reversed(range(mesh.ndim)):  # the axis that was split first is the last one
            placement: Any = tensor.placements[axis]
            if not placement.is_replicate():
                start, size = extent[placement.dim]
                part = math.ceil(size / mesh.size(axis))
                skipped = min(size, part * mesh.get_local_rank(axis))
                extent[placement.dim] = (start + skipped, min(part, size - skipped))
    return extent


def free_after_prediction(model: "FSDPModule", inputs: object, outputs: object) -> None:
    """Frees what a prediction gathered, because no backward pass will follow and free it.

    Args:
        model: A sharded or replicated model.
        inputs: Ignored, but passed to forward hooks.
        outputs: Ignored, but passed to forward hooks.
    """
    if not torch.is_grad_enabled():
        end_of_prediction(model)
