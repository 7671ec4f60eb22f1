"""Reads the part of a tensor that this process holds: all of it, or a shard of a DTensor."""

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeGuard

import torch

from samestep.common.steps.projections import Piece

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor

_PLAIN = (torch.Tensor, torch.nn.Parameter)
is_wrapped: Callable[[torch.Tensor], bool] = torch._C._functorch.is_functorch_wrapped_tensor
"""Returns whether a transformation of torch.func has wrapped a tensor, which then has no memory."""


def is_dtensor(tensor: torch.Tensor) -> "TypeGuard[DTensor]":
    """Returns whether a tensor is a DTensor, without importing the class, which takes long, if the script has not."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)


def piece_of(tensor: torch.Tensor) -> Piece:
    """Returns which part of a tensor this process holds."""
    if not is_dtensor(tensor):
        return Piece.whole((*tensor.shape, 2) if tensor.is_complex() else tuple(tensor.shape))
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    size, start = compute_local_shape_and_global_offset(tensor.shape, tensor.device_mesh, tensor.placements)
    start = tuple(0 if length == 0 else first for first, length in zip(start, size, strict=True))
    return Piece(tuple(tensor.shape), start, tuple(size))


def unwrapped(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the tensor inside the wrappers of torch.func; dims that `vmap` runs over come first."""
    functorch = torch._C._functorch
    while is_wrapped(tensor):
        dim = functorch.maybe_get_bdim(tensor)
        tensor = functorch.get_unwrapped(tensor)
        tensor = tensor if dim < 1 else tensor.movedim(dim, 0)
    return tensor


def local_of(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the part of a tensor that this process holds, detached."""
    if type(tensor) in _PLAIN:
        return tensor.detach() if tensor.requires_grad and torch.is_grad_enabled() else tensor
    local = tensor._local_tensor if is_dtensor(tensor) else tensor
    collectives = sys.modules.get("torch.distributed._functional_collectives")
    if collectives is not None and isinstance(local, collectives.AsyncCollectiveTensor):
        local = local.wait()
    return local.detach()


def as_real(tensor: torch.Tensor) -> torch.Tensor:
    """Returns a complex tensor as pairs of real numbers, and any other tensor unchanged."""
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor


def gradient_of(tensor: torch.Tensor) -> torch.Tensor | None:
    """Returns the piece of a tensor's gradient that this process holds; None if there is no gradient."""
    gradient = tensor.grad
    if gradient is None or (type(gradient) is torch.Tensor and gradient.layout == torch.strided):
        return gradient
    if is_dtensor(gradient) and is_dtensor(tensor) and gradient.placements != tensor.placements:
        gradient = gradient.redistribute(placements=tensor.placements)  # the gradient may still be partial
    local = local_of(gradient)
    return local.to_dense() if local.layout != torch.strided else local


def gradient_as_real(tensor: torch.Tensor) -> torch.Tensor | None:
    """Returns the gradient of a tensor that may be complex; None if there is none."""
    gradient = gradient_of(tensor)
    return None if gradient is None else as_real(gradient)


def dtype_of(tensor: torch.Tensor) -> str:
    """Returns the real dtype of a tensor's numbers, in the spelling of a record."""
    return str(tensor.dtype.to_real()).removeprefix("torch.")


def has_no_numbers(tensor: torch.Tensor) -> bool:
    """Returns whether a tensor has only a shape: it is on the device "meta", or fake (by name, as the import is slow)."""
    return tensor.is_meta or type(tensor).__name__ == "FakeTensor"
