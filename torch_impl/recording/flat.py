"""The parameters of FullyShardedDataParallel (FSDP1): parts of a flat parameter, which is sharded regardless of their borders."""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from samestep.common.steps.projections import Piece


@dataclasses.dataclass(frozen=True, eq=False)
class FlatTensor:
    """A parameter that is part of a flat one.

    Attributes:
        name: The name below the wrapped module.
        layer: The class of the module that holds it.
        piece: What this process holds of it, which may be nothing.
        owner: The parameter that the optimizer holds.
        also: The ids of other parameters with the same numbers.
        value: Reads the piece.
        gradient: Reads its piece of the gradient; None if there is none.
    """

    name: str
    layer: str
    piece: Piece
    owner: torch.Tensor
    also: tuple[int, ...]
    value: Callable[[], torch.Tensor]
    gradient: Callable[[], torch.Tensor | None]


def flat_tensors(module: nn.Module) -> Iterator[FlatTensor]:
    """Yields the parameters that a module holds in a flat one; nothing if it is not FSDP1's."""
    handle: Any = module.__dict__.get("_handle")
    flat = getattr(handle, "flat_param", None)
    if flat is None or not getattr(flat, "_shard_param_infos", None):
        return
    infos = zip(flat._fqns, flat._shapes, flat._shard_param_infos, flat._param_infos, strict=True)
    for place, (name, shape, info, where) in enumerate(infos):
        size = info.numel_in_shard if info.in_shard else 0
        start = info.intra_param_start_idx if info.in_shard else 0
        own = flat._params[place] if handle._use_orig_params else flat
        yield FlatTensor(
            name,
            type(where.module).__name__,
            Piece(tuple(shape), (start,), (size,), is_flat=True),
            own,
            (id(flat),),
            _reader(flat, info.offset_in_shard if size else 0, size),
            (lambda own=own: own.grad if own.grad is not None else None)
            if handle._use_orig_params
            else _gradient_reader(flat, info.offset_in_shard if size else 0, size),
        )


def _reader(flat: nn.Parameter, offset: int, size: int) -> Callable[[], torch.Tensor]:
    return lambda: flat.detach()[offset : offset + size]


def _gradient_reader(flat: nn.Parameter, offset: int, size: int) -> Callable[[], torch.Tensor | None]:
    return lambda: None if flat.grad is None else flat.grad[offset : offset + size]
