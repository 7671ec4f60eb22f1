"""The parameters of FullyShardedDataParallel (FSDP1), parts of a flat parameter that is sharded across their borders."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from samestep.common.steps.projections import Piece
from samestep.common.steps.record import RecordedTensor
from samestep.torch_impl.recording.pieces import dtype_of
from samestep.torch_impl.recording.tracked_tensor import TrackedTensor


def flat_tensors(module: nn.Module) -> Iterator[tuple[TrackedTensor, torch.Tensor]]:
    """Yields each parameter that a module holds in a flat one, together with the flat one; nothing without FSDP1.

    Names are relative to the module. This process may hold no part of a parameter.
    """
    handle: Any = module.__dict__.get("_handle")
    flat = getattr(handle, "flat_param", None)
    if flat is None or not getattr(flat, "_shard_param_infos", None):
        return
    infos = zip(flat._fqns, flat._shapes, flat._shard_param_infos, flat._param_infos, strict=True)
    for place, (name, shape, info, where) in enumerate(infos):
        size = info.numel_in_shard if info.in_shard else 0
        start = info.intra_param_start_idx if info.in_shard else 0
        own = flat._params[place] if handle._use_orig_params else flat
        piece, offset = Piece(tuple(shape), (start,), (size,), is_flat=True), info.offset_in_shard if size else 0
        tensor = RecordedTensor(name, dtype_of(own), piece, layer=type(where.module).__name__)
        yield TrackedTensor(tensor, own, *_readers(own, flat, slice(offset, offset + size))), flat


def _readers(
    own: torch.Tensor, flat: torch.Tensor, cut: slice
) -> tuple[Callable[[], torch.Tensor], Callable[[], torch.Tensor | None]]:
    """Returns functions that read a part of a flat parameter and of its gradient, which the parameter may hold itself."""

    def gradient() -> torch.Tensor | None:
        return own.grad if own is not flat or own.grad is None else own.grad[cut]

    return lambda: flat.detach()[cut], gradient
