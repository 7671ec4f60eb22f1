"""Compressed exchanges of DDP's gradients, as communication hooks; the twin of `common/reference/compression.py`.

DDP's own hooks are of no use here (torch 2.13): it refuses the one for bfloat16 by its name without NCCL, and those for int8
fail on gloo. A hook sees buckets, and DDP fills them anew after the first step, so what is kept has parameters' names.

References:
    torch.nn.parallel.DistributedDataParallel.register_comm_hook.
"""

import dataclasses
import functools
from collections.abc import Sequence

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

from samestep.common.ledger import Footprint
from samestep.common.program import Arrays, TrainState
from samestep.common.strategy import Run
from samestep.common.workload.compression import LARGEST, RESIDUAL, SUM_RESIDUAL, piece_size
from samestep.torch_impl.local_state import LocalState, gather_states
from samestep.torch_impl.weights import named_weights

HALVES = {"fp16": torch.float16, "bf16": torch.bfloat16}


class Compressor:
    """The exchanges of one rank, and what it keeps from one to the next."""

    def __init__(self, run: Run, bare: nn.Module) -> None:
        self._half = HALVES.get(str(run.techniques.compress))
        self._weights = named_weights(bare)
        self._names = {weight.parameter: name for name, weight in self._weights.items()}
        self._ranks, self._rank = dist.get_world_size(), dist.get_rank()
        self._residuals: dict[str, torch.Tensor] = {}
        """By parameter: [ranks, piece], a row for each rank that adds a piece up."""
        self._sum_residuals: dict[str, torch.Tensor] = {}
        """By parameter: [piece], of the piece that this rank adds up."""

    def hook(self, state: None, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        """Sums the gradients of a bucket in place; DDP does not divide what a hook returns.

        Args:
            state: Nothing.
            bucket: The gradients that DDP exchanges together.
        """
        names = [self._names[parameter] for parameter in bucket.parameters()]
        rows = [self._rows(gradient) for gradient in bucket.gradients()]
        total = self._sum_of_int8(names, rows) if self._half is None else self._sum_of_halves(torch.cat(rows, 1))
        for gradient, own in zip(bucket.gradients(), total.split([row.shape[1] for row in rows], 1), strict=True):
            gradient.copy_(own.reshape(-1)[: gradient.numel()].view_as(gradient))
        done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        done.set_result(bucket.buffer())
        return done

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

        values = torch.cat(rows, 1) + torch.cat(self._kept(self._residuals, names, rows), 1)
        largest = self._largest(values.split(pieces, 1))
        scale = each(largest / LARGEST)
        sent = quantise(values, each(largest))
        self._residuals |= zip(names, (values - sent * scale).split(pieces, 1), strict=True)
        total = self._to_owners(sent.to(torch.int8)).sum(0, dtype=values.dtype)
        total += torch.cat(self._kept(self._sum_residuals, names, [row[0] for row in rows])) / scale
        largest = self._largest(total.split(pieces))
        sum_scale = each(largest / LARGEST)
        whole = quantise(total, each(largest))
        self._sum_residuals |= zip(names, ((total - whole * sum_scale) * scale).split(pieces), strict=True)
        return self._to_all(whole.to(torch.int8)).to(values.dtype) * (sum_scale * scale)

    def _kept(
        self, kept: dict[str, torch.Tensor], names: Sequence[str], like: Sequence[torch.Tensor]
    ) -> list[torch.Tensor]:
        return [kept.get(name, torch.zeros_like(one)) for name, one in zip(names, like, strict=True)]

    def _largest(self, parts: Sequence[torch.Tensor]) -> torch.Tensor:
        """The largest absolute number of each parameter over all ranks; 127 where all are zero."""
        largest = torch.stack([part.abs().max() for part in parts])
        dist.all_reduce(largest, dist.ReduceOp.MAX)
        return torch.where(largest == 0, LARGEST, largest)

    def snapshot(self) -> tuple[Arrays, ...]:
        """Gathers what every rank keeps; what it returns on the first rank counts."""
        own: Arrays = {}
        for name, residual in self._residuals.items():
            own[f"{RESIDUAL}/{name}"] = self._to_neutral(name, residual)
        for name, residual in self._sum_residuals.items():
            whole = self._to_neutral(name, self._to_all(residual))
            own |= {f"{SUM_RESIDUAL}/{name}": whole} if self._rank == 0 else {}
        device = next(iter(self._names)).device
        return tuple(
            arrays for state in gather_states(TrainState(0, {}, {}, local=(own,)), device) for arrays in state.local
        )

    def restore(self, local: Sequence[Arrays]) -> None:
        """Takes what every rank kept; nothing lets it start anew."""
        self._residuals, self._sum_residuals = {}, {}
        for key, value in local[self._rank].items() if local else ():
            kind, _, name = key.partition("/")
            if kind == RESIDUAL:
                self._residuals[name] = self._rows(self._weights[name].from_neutral(value))
        for key, value in local[0].items() if local else ():
            kind, _, name = key.partition("/")
            if kind == SUM_RESIDUAL:
                self._sum_residuals[name] = self._rows(self._weights[name].from_neutral(value))[self._rank].clone()

    def kept_bytes(self) -> int:
        """The bytes that this rank keeps."""
        return sum(kept.nbytes for kept in (*self._residuals.values(), *self._sum_residuals.values()))

    def _to_neutral(self, name: str, rows: torch.Tensor) -> np.ndarray:
        weight = self._weights[name]
        return weight.to_neutral(rows.reshape(-1)[: weight.parameter.numel()].view_as(weight.parameter))


def quantise(values: torch.Tensor, largest: torch.Tensor) -> torch.Tensor:
    """Rounds to whole numbers from -127 to 127, half to even.

    Args:
        values: None is larger than the largest.
        largest: What becomes 127, for each number.
    """
    factor = torch.full_like(largest, LARGEST) / largest  # torch 2.13: a number over a tensor is rounded twice
    return torch.round(values * factor)


@dataclasses.dataclass(frozen=True)
class CompressedState:
    """The state of a process whose gradients are compressed: what it holds anyway, and what the exchanges left over.

    Attributes:
        held: Parameters, optimizer state and buffers.
        compressor: Of this rank.
    """

    held: LocalState
    compressor: Compressor

    def snapshot(self, step: int) -> TrainState:
        """Copies everything."""
        return dataclasses.replace(self.held.snapshot(step), local=self.compressor.snapshot())

    def restore(self, state: TrainState) -> None:
        """Copies everything in place."""
        self.held.restore(state)
        self.compressor.restore(state.local)

    def footprint(self, device: torch.device, gradients_bytes: int, gathered_bytes: int = 0) -> Footprint:
        """Adds up the tensors of this process, as `LocalState.footprint` does."""
        own = self.held.footprint(device, gradients_bytes, gathered_bytes)
        return dataclasses.replace(own, residuals_bytes=self.compressor.kept_bytes())
