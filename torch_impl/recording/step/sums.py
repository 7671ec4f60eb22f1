"""Computes the sums of examples on the device that holds them; these become hashes when they are mixed."""

import functools
import operator

import numpy as np
import torch

from samestep.common.steps.rows import coefficients, is_channels_last, signed_coefficients
from samestep.torch_impl.recording.step.memory import Sums, on_host
from samestep.torch_impl.recording.step.sparse import entries_of

_SINGLE = torch.float32  # before float64 mode renames it


def sums_of(place: int, tensor: torch.Tensor, out: torch.Tensor | None = None, before: Sums | None = None) -> Sums:
    """Returns the sum of words x coefficients for each example.

    Args:
        place: The place of the input among those of the call.
        tensor: The input, [examples, ...].
        out: Host memory that may be used for the sums.
        before: The sums of other inputs of the call, which are added.
    """
    if tensor.layout is not torch.strided:
        return together(_sparse_sums(place, tensor), before)
    if tensor.ndim == 4 and is_channels_last(tensor.shape):
        tensor = tensor.movedim(3, 1)
    flat = tensor if tensor.ndim == 2 else tensor.reshape(tensor.shape[0], -1)
    is_on_host, size = flat.is_cpu, flat.shape[1]
    if flat.is_floating_point():
        bits = flat.to(_SINGLE).contiguous().view(torch.int32)
        if is_on_host:
            return together(np.einsum("ij,j->i", bits.numpy().view(np.uint32), coefficients(place, size)), before)
        words = bits.to(torch.int64) & 0xFFFFFFFF
    else:
        words = flat if flat.dtype is torch.int64 else flat.to(torch.int64)
    by = _coefficients(place, size, words.device)
    if not is_on_host:
        return together((words * by).sum(1), before)
    if before is None:
        return torch.mv(words, by, out=out)
    if isinstance(before, torch.Tensor) and before.is_cpu:
        return torch.addmv(before, words, by, out=out)
    return together(torch.mv(words, by, out=out), before)


def together(sums: Sums, before: Sums | None, out: torch.Tensor | None = None) -> Sums:
    """Adds the sums of two inputs of a call.

    Args:
        sums: The sums of one input.
        before: The sums of another input; None if there is none.
        out: Host memory that may be used for the result.
    """
    if before is None:
        return sums
    if isinstance(sums, torch.Tensor) and isinstance(before, torch.Tensor) and sums.device == before.device:
        return torch.add(sums, before, out=out if sums.is_cpu else None)
    return on_host(sums) + on_host(before)


def _sparse_sums(place: int, tensor: torch.Tensor) -> torch.Tensor:
    examples, places, values = entries_of(tensor)
    if values.is_floating_point():
        words = values.to(_SINGLE).view(torch.int32).to(torch.int64) & 0xFFFFFFFF
    else:
        words = values.to(torch.int64)
    products = words * signed_coefficients(place, places, operator.rshift)
    return torch.zeros(len(tensor), dtype=torch.int64, device=words.device).index_add_(0, examples, products)


@functools.lru_cache(64)
def _coefficients(place: int, size: int, device: torch.device) -> torch.Tensor:
    if size & (size - 1):  # like coefficients() itself
        return _coefficients(place, 1 << size.bit_length(), device)[:size]
    return torch.from_numpy(coefficients(place, size).view(np.int64)).to(device)
