"""The parameters of DeepSpeed's ZeRO; the optimizer is given flat partitions, and each parameter has its place in one.

Stages 1 and 2 and the optimizer for bf16 set a `_hp_mapping` on each parameter: which part of it lies where in this rank's flat
partition, or None if no part does. Stage 3 sets `ds_tensor`, the shard of this rank; the last shard is padded at its end.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import torch

from samestep.common.steps.projections import Piece

Copy = tuple[Piece, Callable[[], torch.Tensor]]
"""A piece of a parameter, and a function that reads it."""


@dataclasses.dataclass(frozen=True, eq=False)
class Partition:
    """The part of a parameter that this process updates.

    Attributes:
        piece: The range of elements, which may be empty.
        flat: The tensor that the optimizer holds; None if it holds no element of this parameter.
        start: The position of the first element in the flat tensor.
        value: Reads the elements that are updated.
        copy: The elements that the next forward pass uses, which follow the updated ones.
    """

    piece: Piece
    flat: torch.Tensor | None
    start: int
    value: Callable[[], torch.Tensor]
    copy: Copy

    def gradient(self) -> torch.Tensor | None:
        """Returns the gradient of this part; None if there is none."""
        if self.flat is None or self.flat.grad is None:
            return None
        return self.flat.grad.detach()[self.start : self.start + self.piece.size[0]]


def is_partitioned(parameter: torch.Tensor) -> bool:
    """Returns whether the optimizer holds a parameter as a part of a flat tensor."""
    return "_hp_mapping" in vars(parameter) or "ds_tensor" in vars(parameter)


def partition_of(parameter: Any) -> Partition:
    """Returns the part of a parameter that this process updates.

    Args:
        parameter: A partitioned parameter.
    """
    return _of_shard(parameter) if "ds_tensor" in vars(parameter) else _of_mapping(parameter)


def _of_mapping(parameter: Any) -> Partition:
    shape = tuple(parameter.shape)
    copy = Piece.whole(shape), lambda: parameter.detach()
    mapping = parameter._hp_mapping
    if mapping is None:
        return Partition(_flat_piece(shape, 0, 0), None, 0, lambda: parameter.detach().reshape(-1)[:0], copy)
    place, fragment = mapping.lp_fragment_address, mapping.hp_fragment
    flat = fragment if fragment._base is None else fragment._base
    piece = _flat_piece(shape, place.start, place.numel)
    return Partition(piece, flat, mapping.hp_fragment_address.start, lambda: fragment.detach(), copy)


def _of_shard(parameter: Any) -> Partition:
    shape, shard = tuple(parameter.ds_shape), parameter.ds_tensor
    optimizer = vars(parameter).get("_z3_optimizer")
    rank = torch.distributed.get_rank(parameter.ds_process_group)
    start = min(rank * shard.numel(), math.prod(shape))
    size = min(shard.numel(), math.prod(shape) - start)
    piece = _flat_piece(shape, start, size)

    def local() -> torch.Tensor:
        return parameter.ds_tensor.detach()[:size]

    if optimizer is None or not parameter.requires_grad:
        return Partition(piece, None, 0, local, (piece, local))
    group, offset, _ = optimizer.grad_position[optimizer.get_param_id(parameter)]
    flat = optimizer.fp32_partitioned_groups_flat[group]
    return Partition(piece, flat, offset, lambda: flat.detach()[offset : offset + size], (piece, local))


def _flat_piece(shape: tuple[int, ...], start: int, size: int) -> Piece:
    return Piece(shape, (start if size else 0,), (size,), is_flat=True)
