"""Exchanges in two halves: each rank adds up a piece of every gradient, and sends the sum to all; fp16, bf16 and int8."""

import functools
from collections.abc import Mapping, Sequence

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

from samestep.common.program import Arrays
from samestep.common.strategy import Run
from samestep.common.workload.compression import LARGEST, RESIDUAL, SUM_RESIDUAL, piece_size
from samestep.torch_impl.weights import Weight

HALVES = {"fp16": torch.float16, "bf16": torch.bfloat16}


class Pieces:
    """A `Compressor` that sends every number, rounded before the sum and after it."""

    def __init__(self, run: Run, weights: Mapping[str, Weight]) -> None:
        self._half = HALVES.get(str(run.techniques.compress))
        self._weights = weights
        self._ranks, self._rank = dist.get_world_size(), dist.get_rank()
        self._residuals: dict[str, torch.Tensor] = {}
        """By parameter: [ranks, piece], a row for each rank that adds a piece up."""
        self._sum_residuals: dict[str, torch.Tensor] = {}
        """By parameter: [piece], of the piece that this rank adds up."""

    def exchange(self, gradients: Mapping[str, torch.Tensor]) -> None:
        """Sums some gradients over all ranks, in place; by name."""
        rows = [self._rows(gradient) for gradient in gradients.values()]
        whole = torch.cat(rows, 1)
        total = self._sum_of_int8(list(gradients), rows) if self._half is None else self._sum_of_halves(whole)
        for gradient, own in zip(gradients.values(), total.split([row.shape[1] for row in rows], 1), strict=True):
            gradient.copy_(_whole(own, gradient))

    def _rows(self, whole: torch.Tensor) -> torch.Tensor:
        """Cuts a tensor into a row for each rank, [ranks, piece], with zeros at the end."""
        piece = piece_size(whole.numel(), self._ranks)
        padding = piece * self._ranks - whole.numel()
        return nn.functional.pad(whole.reshape(-1), (0, padding)).view(self._ranks, piece)

    def _to_owners(self, rows: torch.Tensor) -> torch.Tensor:
        """Sends each rank its row, and returns those that this one is sent: [ranks, numbers]."""
        received = torch.empty_like(rows)
        dist.all_to_all_single(received, rows)
        return received

    def _to_all(self, own: torch.Tensor) -> torch.Tensor:
        """Gathers the row of each rank: [ranks, numbers]."""
        rows = own.new_empty(self._ranks, len(own))
        dist.all_gather_single(rows.view(-1), own)
        return rows

    def _sum_of_halves(self, rows: torch.Tensor) -> torch.Tensor:
        """Sums rows [ranks, numbers] that are rounded before the sum and after it."""
        parts = self._to_owners(rows.float().to(self._half)).to(rows.dtype)
        own = functools.reduce(torch.add, parts)
        return self._to_all(own.float().to(self._half)).to(rows.dtype)

    def _sum_of_int8(self, names: Sequence[str], rows: Sequence[torch.Tensor]) -> torch.Tensor:
        """Sums rows [ranks, piece] of some parameters that are sent as int8, and so is their sum."""
        pieces = [row.shape[1] for row in rows]

        def each(per_parameter: torch.Tensor) -> torch.Tensor:  # [parameters] -> [numbers]
            return per_parameter.repeat_interleave(torch.tensor(pieces, device=per_parameter.device))

        values = torch.cat(rows, 1) + torch.cat(_kept(self._residuals, names, rows), 1)
        largest = self._largest(values.split(pieces, 1))
        scale = each(largest / LARGEST)
        sent = quantise(values, each(largest))
        self._residuals |= zip(names, (values - sent * scale).split(pieces, 1), strict=True)
        total = self._to_owners(sent.to(torch.int8)).sum(0, dtype=values.dtype)
        total += torch.cat(_kept(self._sum_residuals, names, [row[0] for row in rows])) / scale
        largest = self._largest(total.split(pieces))
        sum_scale = each(largest / LARGEST)
        whole = quantise(total, each(largest))
        self._sum_residuals |= zip(names, ((total - whole * sum_scale) * scale).split(pieces), strict=True)
        return self._to_all(whole.to(torch.int8)).to(values.dtype) * (sum_scale * scale)

    def _largest(self, parts: Sequence[torch.Tensor]) -> torch.Tensor:
        """The largest absolute number of each parameter over all ranks; 127 where all are zero."""
        largest = torch.stack([part.abs().max() for part in parts])
        dist.all_reduce(largest, dist.ReduceOp.MAX)
        return torch.where(largest == 0, LARGEST, largest)

    def snapshot(self) -> Arrays:
        """What this rank keeps; the sums' residuals are joined for the first rank."""
        own = {f"{RESIDUAL}/{name}": self._to_neutral(name, rows) for name, rows in self._residuals.items()}
        for name, residual in self._sum_residuals.items():
            whole = self._to_neutral(name, self._to_all(residual))
            own |= {f"{SUM_RESIDUAL}/{name}": whole} if self._rank == 0 else {}
        return own

    def restore(self, local: Sequence[Arrays]) -> None:
        """Takes what every rank kept; nothing lets it start anew."""
        self._residuals, self._sum_residuals = {}, {}
        if not local or self._half is not None:
            return
        for name, weight in self._weights.items():
            if (own := local[self._rank].get(f"{RESIDUAL}/{name}")) is not None:
                self._residuals[name] = self._rows(weight.from_neutral(own))
            if (shared := local[0].get(f"{SUM_RESIDUAL}/{name}")) is not None:
                self._sum_residuals[name] = self._rows(weight.from_neutral(shared))[self._rank].clone()

    def kept_bytes(self) -> int:
        """The bytes that this rank keeps."""
        return sum(kept.nbytes for kept in (*self._residuals.values(), *self._sum_residuals.values()))

    def _to_neutral(self, name: str, rows: torch.Tensor) -> np.ndarray:
        weight = self._weights[name]
        return weight.to_neutral(_whole(rows, weight.parameter))


def _whole(rows: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Joins rows [ranks, piece], without the zeros at the end."""
    return rows.reshape(-1)[: like.numel()].view_as(like)


def _kept(kept: Mapping[str, torch.Tensor], names: Sequence[str], like: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    return [kept.get(name, torch.zeros_like(one)) for name, one in zip(names, like, strict=True)]


def quantise(values: torch.Tensor, largest: torch.Tensor) -> torch.Tensor:
    """Rounds to whole numbers from -127 to 127, half to even.

    Args:
        values: None is larger than the largest.
        largest: What becomes 127, for each number.
    """
    factor = torch.full_like(largest, LARGEST) / largest  # torch 2.13: a number over a tensor is rounded twice
    return torch.round(values * factor)
