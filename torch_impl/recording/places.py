"""Finds the rank of this process, the number of processes, and how they share the model."""

import functools
import math
import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import nn

from samestep.common.steps.wrapping import preceded
from samestep.torch_impl.recording.pieces import is_dtensor, local_of

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor


def is_of_many() -> bool:
    """Returns whether this process belongs to a group of several."""
    distributed = sys.modules.get("torch.distributed")
    return distributed is not None and distributed.is_available() and distributed.is_initialized()


def rank_and_world() -> tuple[int, int]:
    """Returns the rank of this process and the number of processes, from the default group or from the launcher."""
    if is_of_many():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


def share_of_norm(norm: "DTensor") -> torch.Tensor | None:
    """Returns this process's share of a norm over all shards; the squares of all shares add up to the square of the norm.

    Computing the whole norm would be an exchange, in which a process whose recorder has failed would not take part.

    Args:
        norm: The norm, of which each process has the part of its own shards.

    Returns:
        The share; None if it is not known.
    """
    mesh, split = norm.device_mesh, [dim for dim, each in enumerate(norm.placements) if each.is_partial()]
    if mesh.size() != rank_and_world()[1] or any(getattr(norm.placements[dim], "norm_type", 0) != 2 for dim in split):
        return None
    copies = mesh.size() / math.prod(map(mesh.size, split))
    return local_of(norm) / copies**0.5


def follow_join(end: Callable[[], None]) -> None:
    """Makes a process that runs out of batches end its last step before DDP's `join` gives it the weights of other ranks."""
    if not torch.distributed.is_available():
        return
    kind = nn.parallel.distributed.Join
    kind.__exit__ = preceded(kind.__exit__, lambda *_: end())


def layouts(parameters: Sequence[torch.Tensor], called: Sequence[nn.Module]) -> tuple[str, ...]:
    """Returns how the processes share the model, as far as that can be seen.

    Args:
        parameters: The parameters of the script.
        called: The outermost modules that were called.

    Returns:
        The ones in use of "ddp", "deepspeed", "dp", "fsdp1", "fsdp2" and "tp".
    """
    modules = [each for module in called for each in module.modules()]
    found = {_LAYOUTS[name] for each in modules for kind in type(each).__mro__ if (name := kind.__name__) in _LAYOUTS}
    sharded = {id(each) for module in modules if _is_fsdp2(type(module)) for each in module.parameters()}
    if any(is_dtensor(each) and (each.device_mesh.ndim > 1 or id(each) not in sharded) for each in parameters):
        found.add("tp")
    return tuple(sorted(found))


_LAYOUTS = {
    "DistributedDataParallel": "ddp",
    "DataParallel": "dp",
    "DeepSpeedEngine": "deepspeed",
    "FullyShardedDataParallel": "fsdp1",
    "FSDPModule": "fsdp2",
}


@functools.lru_cache(1024)
def _is_fsdp2(layer: type[nn.Module]) -> bool:
    return any(kind.__name__ == "FSDPModule" for kind in layer.__mro__)


def shards(module: nn.Module) -> dict[int, nn.Parameter]:
    """Returns the shards of FSDP2, by the ids of the whole parameters that temporarily take their places.

    Whole parameters are freed later; after a call without gradients, such as that of a teacher, it is not known when.
    """
    states = [each._get_fsdp_state() for each in module.modules() if _is_fsdp2(type(each))]  # pyrefly: ignore[not-callable]
    groups = [getattr(each, "_fsdp_param_groups", None) or [each._fsdp_param_group] for each in states]
    shards = [each for own in groups for group in own if group is not None for each in group.fsdp_params]
    return {id(each._unsharded_param): each.sharded_param for each in shards if hasattr(each, "_unsharded_param")}
