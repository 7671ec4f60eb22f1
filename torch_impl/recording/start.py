"""Perturbs, saves or replaces the initial weights before the first pass, if the options ask for it."""

import math
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import nn

from samestep.common.files.arrays import read_arrays, save_arrays
from samestep.common.files.writing import replacing
from samestep.common.steps.projections import Piece, mixed
from samestep.common.steps.recording import Recorder
from samestep.torch_impl.recording.dtypes import dtype_of_products
from samestep.torch_impl.recording.places import rank_and_world
from samestep.torch_impl.recording.tensors import find_tensors
from samestep.torch_impl.recording.tracked_tensor import TrackedTensor

_ODD = 0x9E3779B1


def start_with(recorder: Recorder, called: Iterable[nn.Module], leaves: Sequence[TrackedTensor]) -> None:
    """Prepares the initial weights according to the options.

    Args:
        recorder: The recorder, which has the options.
        called: The outermost modules that were called.
        leaves: See `find_tensors`.
    """
    options = recorder.options
    asked = options.perturb, options.weights_from, options.weights_to
    if recorder.has_started or (asked == (None, None, None) and options.stop_after != 0):
        return
    recorder.has_started = True
    held = [each for each in find_tensors([*called], leaves) if each.tensor.role == "parameter"]
    with torch.no_grad():
        if options.weights_from is not None:
            _load(held, Path(options.weights_from), recorder)
        if options.perturb is not None:
            for each in held:
                for piece, value in _places(each):
                    _perturb(each.tensor.name, piece, value, options.perturb, options.products)
        if options.weights_to is not None and rank_and_world()[0] == 0:
            _save(held, Path(options.weights_to), recorder)
    if options.stop_after == 0:
        recorder.leave()


def _save(held: Sequence[TrackedTensor], path: Path, recorder: Recorder) -> None:
    if any(math.prod(each.tensor.piece.size) < math.prod(each.tensor.piece.shape) for each in held):
        recorder.note("the initial weights are sharded; save them from a run of one process.")
        return
    with replacing(path, is_users=True) as file:
        values = [each.value().detach().float().cpu().numpy().reshape(each.tensor.piece.shape) for each in held]
        save_arrays(file, {each.tensor.name: value for each, value in zip(held, values, strict=True)})


def _load(held: Sequence[TrackedTensor], path: Path, recorder: Recorder) -> None:
    """Replaces the initial weights by those of the same name and shape."""
    arrays = read_arrays(path)
    for each in held:
        whole, shape = arrays.get(each.tensor.name), each.tensor.piece.shape
        if whole is None or whole.shape != shape:
            recorder.note(f"{path} has no {each.tensor.name} of shape {shape}; its own initial weights were kept.")
            continue
        for piece, value in _places(each):
            places = tuple(slice(first, first + size) for first, size in zip(piece.start, piece.size, strict=True))
            part = torch.from_numpy(np.array((whole.ravel() if piece.is_flat else whole)[places]))  # even of a scalar
            part = part.reshape(value.shape)
            is_its_own = torch.allclose(value.cpu().to(part.dtype), part)
            (value.data if is_its_own else value).copy_(part)  # the same values keep a graph valid


def _places(held: TrackedTensor) -> list[tuple[Piece, torch.Tensor]]:
    """Returns all tensors that hold the numbers of a tracked tensor, with their pieces."""
    return [(held.tensor.piece, held.value()), *((piece, read()) for piece, read in held.copies)]


def _perturb(name: str, piece: Piece, value: torch.Tensor, seed: int, products: str) -> None:
    """Multiplies each number by 1 + u or 1 - u, chosen by name, GLOBAL position and seed, so all shardings agree."""
    unit = max(torch.finfo(each).eps for each in (dtype_of_products(value), getattr(torch, products or "float64"))) / 2
    signs = torch.from_numpy(signs_of(piece, zlib.crc32(name.encode()) ^ (seed * _ODD)))
    signs = signs.to(value.device).reshape(value.shape)
    value.data.copy_(value.to(torch.float64) * (1 + unit * signs))  # `data` keeps the versions for an existing graph


def signs_of(piece: Piece, seed: int) -> np.ndarray:
    """Returns the signs of the numbers of a piece, float64 [numbers].

    Args:
        piece: The piece, whose numbers get signs by their positions in the whole tensor.
        seed: The seed from which the signs are drawn.
    """
    index, lengths = np.zeros((), np.uint64), (1,) if piece.is_flat else piece.shape
    for length, start, size in zip(lengths, piece.start, piece.size, strict=True):
        index = index[..., None] * np.uint64(length) + np.arange(start, start + size, dtype=np.uint64)
    found = mixed((index.ravel() * np.uint64(_ODD) + np.uint64(seed & 0xFFFFFFFF)) & np.uint64(0xFFFFFFFF))
    return np.where((found >> np.uint64(15)) & np.uint64(1), 1.0, -1.0)
