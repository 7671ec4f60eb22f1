"""Exchanges in fp16, bf16 and int8, in two halves: each rank adds up a piece of every gradient, and sends the sum to all."""

import functools
from collections.abc import Mapping, Sequence

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

from samestep.common.program import RESIDUAL, SUM_RESIDUAL, Arrays
from samestep.common.strategy import Run
from samestep.common.techniques.compress.pieces import piece_size
from samestep.common.techniques.compress.statement import LARGEST
from samestep.torch_impl.weights import Weight

HALVES = {"fp16": torch.float16, "bf16": torch.bfloat16}


class Pieces:
    """The exchanges of one rank, which send every number, rounded before and after the sum, and the residuals between them."""

    def __init__(self, run: Run, weights: Mapping[str, Weight]) -> None:
        self._half = HALVES.get(str(run.techniques.compress))
        self._weights = weights
        self._ranks, self._rank = dist.get_world_size(), dist.get_rank()
        self._residuals: dict[str, torch.Tensor] = {}
        """Parameter -> residuals [ranks, piece], with a row for each rank that adds up a piece."""
        self._sum_residuals: dict[str, torch.Tensor] = {}
        """Parameter -> residual [piece] of the piece that this rank adds up."""

    def exchange(self, gradients: Mapping[str, torch.Tensor]) -> None:
        """Sums gradients, given by name, over all ranks, in place."""
        (self._sum_int8 if self._half is None else self._sum_halves)(gradients)

    def _rows(self, whole: torch.Tensor) -> torch.Tensor:
        """Returns a tensor cut into a row for each rank, [ranks, piece], with zeros at the end."""
        piece = piece_size(whole.numel(), self._ranks)
        padding = piece * self._ranks - whole.numel()
        return nn.functional.pad(whole.reshape(-1), (0, padding)).view(self._ranks, piece)

    def _to_owners(self, rows: torch.Tensor) -> torch.Tensor:
        """Sends each rank its row, and returns the rows that this rank is sent, [ranks, numbers]."""
        received = torch.empty_like(rows)
        dist.all_to_all_single(received, rows)
        return received

    def _to_all(self, own: torch.Tensor) -> torch.Tensor:
        """Returns the rows of all ranks, gathered, [ranks, numbers]."""
        rows = own.new_empty(self._ranks, len(own))
        dist.all_gather_single(rows.view(-1), own)
        return rows

    def _sum_halves(self, gradients: Mapping[str, torch.Tensor]) -> None:
        """Sums gradients in place, rounded before and after the sum."""
        rows = [self._rows(gradient).float().to(self._half) for gradient in gradients.values()]
        parts = self._to_owners(torch.cat(rows, 1)).to(next(iter(gradients.values())).dtype)
        total = self._to_all(functools.reduce(torch.add, parts).float().to(self._half))
        for gradient, own in zip(gradients.values(), total.split([row.shape[1] for row in rows], 1), strict=True):
            gradient.copy_(_whole(own, gradient))

    def _sum_int8(self, gradients: Mapping[str, torch.Tensor]) -> None:
        """Sums gradients in place, sending them and their sum as int8; residuals are updated in place, as new memory is slow."""
        rows = {name: self._rows(gradient) for name, gradient in gradients.items()}
        values = [self._residuals.setdefault(name, torch.zeros_like(row)).add_(row) for name, row in rows.items()]
        largest = self._largest(values)
        scales = (largest / LARGEST).unbind()
        received = self._to_owners(torch.cat(list(map(_sent, values, largest, scales)), 1)).to(largest.dtype)
        total = functools.reduce(torch.add, received).split([row.shape[1] for row in rows.values()])
        sums = [self._sum_residuals.setdefault(name, torch.zeros_like(row[0])) for name, row in rows.items()]
        for own, scale, part in zip(sums, scales, total, strict=True):
            own.div_(scale).add_(part)
        largest = self._largest(sums)
        sum_scales = (largest / LARGEST).unbind()
        whole = self._to_all(torch.cat(list(map(_sent, sums, largest, sum_scales))))
        parts = whole.split([len(own) for own in sums], 1)
        for own, part, gradient, scale, sum_scale in zip(
            sums, parts, gradients.values(), scales, sum_scales, strict=True
        ):
            own.mul_(scale)
            gradient.copy_(_whole(part, gradient)).mul_(sum_scale * scale)

    def _largest(self, parts: Sequence[torch.Tensor]) -> torch.Tensor:
        """Returns the largest absolute value of each parameter over all ranks; 127 if all are zero."""
        largest = torch.stack([torch.stack(part.aminmax()).abs().max() for part in parts])
        dist.all_reduce(largest, dist.ReduceOp.MAX)
        return torch.where(largest == 0, LARGEST, largest)

    def snapshot(self) -> Arrays:
        """Returns the residuals that this rank keeps; on the first rank, also those of the sums, gathered."""
        own = {f"{RESIDUAL}/{name}": self._to_neutral(name, rows) for name, rows in self._residuals.items()}
        for name, residual in self._sum_residuals.items():
            whole = self._to_neutral(name, self._to_all(residual))
            own |= {f"{SUM_RESIDUAL}/{name}": whole} if self._rank == 0 else {}
        return own

    def restore(self, local: Sequence[Arrays]) -> None:
        """Restores the residuals of all ranks; resets them if none are given."""
        self._residuals, self._sum_residuals = {}, {}
        if not local or self._half is not None:
            return
        for name, weight in self._weights.items():
            if (own := local[self._rank].get(f"{RESIDUAL}/{name}")) is not None:
                self._residuals[name] = self._rows(weight.from_neutral(own))
            if (shared := local[0].get(f"{SUM_RESIDUAL}/{name}")) is not None:
                self._sum_residuals[name] = self._rows(weight.from_neutral(shared))[self._rank].clone()

    def kept_bytes(self) -> int:
        """Returns the bytes of the residuals that this rank keeps."""
        return sum(kept.nbytes for kept in (*self._residuals.values(), *self._sum_residuals.values()))

    def _to_neutral(self, name: str, rows: torch.Tensor) -> np.ndarray:
        weight = self._weights[name]
        return weight.to_neutral(_whole(rows, weight.parameter))


def _whole(rows: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Returns the tensor whose rows are [ranks, piece], without the zeros at the end."""
    return rows.reshape(-1)[: like.numel()].view_as(like)


def _sent(values: torch.Tensor, largest: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Returns values rounded to int8, and replaces the values by their rounding errors."""
    whole = quantize(values, largest)
    values.addcmul_(whole, scale, value=-1)
    return whole.to(torch.int8)


def quantize(values: torch.Tensor, largest: torch.Tensor) -> torch.Tensor:
    """Returns values scaled and rounded to whole numbers from -127 to 127, half to even.

    Args:
        values: The values, none larger than `largest` in absolute value.
        largest: The value that becomes 127.
    """
    factor = torch.full_like(largest, LARGEST) / largest  # torch 2.13: a number over a tensor is rounded twice
    return torch.mul(values, factor).round_()
