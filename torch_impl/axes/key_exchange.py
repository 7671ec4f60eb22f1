"""Attention of the positions of a rank to those of all ranks, computed one rank's keys and values at a time.

The keys and values of one rank are a block. Each block gives partial outputs and the log-sum-exp of its scores. Two partial
outputs are merged by their log-sum-exps, so a rank holds the scores of only one block at a time. For the backward pass it saves
what one device saves for as many positions: its own queries, keys, values and outputs, and one logarithm for each output. The
backward pass receives the blocks once more.

The positions of rank r of N are the pieces r and 2N - 1 - r of 2N, in this order. Both pieces attend to the early piece of a
lower rank, and neither attends to its late piece. The late piece attends to both pieces of a higher rank, and the early piece
attends to neither. So each block of another rank needs half of its scores, and all ranks compute equally many.

Shape suffixes: B batch, t tokens of a rank, H heads, K width of a head, N ranks.

References:
    Liu et al., arXiv 2310.01889 (ring); Dao, arXiv 2307.08691, section 3.1 (both passes in blocks); Grattafiori et al.,
    arXiv 2407.21783, section 3.3.2 (two pieces for each rank).
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist

from samestep.torch_impl.techniques.applied import in_full

OfBlock = Callable[[int, torch.Tensor], torch.Tensor]
"""Given a rank and its keys and values, returns their gradient from what this rank computed with them."""


class Gather:
    """Gathers all keys and values at once, and reduce-scatters their gradients."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        """Stores the group of ranks that have parts of the same examples."""
        self._group = group

    def blocks(self, own_2BHtK: torch.Tensor) -> Iterator[tuple[int, torch.Tensor]]:
        """Yields each rank with its keys and values.

        Args:
            own_2BHtK: The keys and values of this rank.
        """
        whole = own_2BHtK.new_empty((self._group.size() * 2, *own_2BHtK.shape[1:]))
        dist.all_gather_into_tensor(whole, own_2BHtK, self._group)
        yield from enumerate(whole.unflatten(0, (-1, 2)))

    def collect(self, own_2BHtK: torch.Tensor, of_block: OfBlock) -> torch.Tensor:
        """Returns the gradient of this rank's keys and values, summed over the ranks.

        Args:
            own_2BHtK: The keys and values of this rank.
            of_block: Computes what this rank contributes to the gradient of a block.
        """
        gradients = [of_block(rank, block) for rank, block in self.blocks(own_2BHtK)]
        summed = torch.empty_like(own_2BHtK)
        dist.reduce_scatter_tensor(summed, torch.cat(gradients), group=self._group)
        return summed


class Ring:
    """Passes keys and values from each rank to the next, and in the backward pass the running sums of their gradients."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        """Stores the group of ranks that have parts of the same examples."""
        self._group, self._rank, self._ranks = group, group.rank(), group.size()

    def blocks(self, own_2BHtK: torch.Tensor) -> Iterator[tuple[int, torch.Tensor]]:
        """See `Gather.blocks`; the next block is in flight while the current one is used."""
        block = own_2BHtK
        for hop in range(self._ranks):
            arriving = self._hand_on(block) if hop < self._ranks - 1 else None
            yield (self._rank - hop) % self._ranks, block
            block = arriving() if arriving else block

    def collect(self, own_2BHtK: torch.Tensor, of_block: OfBlock) -> torch.Tensor:
        """See `Gather.collect`; after N messages, each sum is back at the rank that owns the keys and values."""
        summed = torch.zeros_like(own_2BHtK)
        for rank, block in self.blocks(own_2BHtK):
            summed = self._hand_on(summed + of_block(rank, block))()
        return summed

    def _hand_on(self, tensor: torch.Tensor) -> Callable[[], torch.Tensor]:
        """Starts sending a tensor to the next rank; returns a function that waits for the tensor of the previous rank."""
        received = torch.empty_like(tensor)
        # In one batch, because NCCL runs the messages of a pair of ranks in order: two ranks that both sent first would deadlock.
        both = ((dist.isend, tensor, self._rank + 1), (dist.irecv, received, self._rank - 1))
        works = dist.batch_isend_irecv(
            [dist.P2POp(do, what, group=self._group, group_peer=peer % self._ranks) for do, what, peer in both]
        )

        def arrived() -> torch.Tensor:
            for work in works:
                work.wait()
            return received

        return arrived


class _Attention(torch.autograd.Function):
    """Causal attention in blocks, with early and late positions on each rank.

    Sums within a rank are in float32 or wider. The gradients of keys and values are summed over ranks in their own dtype.
    """

    @staticmethod
    def forward(
        ctx: Any, q_BHtK: torch.Tensor, own_2BHtK: torch.Tensor, exchange: Gather | Ring, rank: int
    ) -> torch.Tensor:
        kind = torch.promote_types(q_BHtK.dtype, torch.float32)
        mixed = torch.zeros_like(q_BHtK, dtype=kind)
        logarithm = torch.full_like(mixed[..., :1], -torch.inf)
        with in_full(q_BHtK.device):
            for other, block in exchange.blocks(own_2BHtK):
                queries, keys = seen(rank, other, q_BHtK.shape[2])
                k, v = block[..., keys, :].to(kind)
                scores = _scores(q_BHtK[..., queries, :].to(kind), k, other == rank)
                divisor = scores.logsumexp(-1, keepdim=True)
                part, before = (scores - divisor).exp() @ v, logarithm[..., queries, :]
                both = torch.logaddexp(before, divisor)
                earlier = mixed[..., queries, :] * (before - both).exp()
                mixed[..., queries, :] = earlier + part * (divisor - both).exp()
                logarithm[..., queries, :] = both
        # Laid out as the next layer takes it, so the copy that it saves and the one saved here share memory.
        output = mixed.transpose(1, 2).to(q_BHtK.dtype).contiguous().transpose(1, 2)
        ctx.save_for_backward(q_BHtK, own_2BHtK, output, logarithm)
        ctx.exchange, ctx.rank = exchange, rank
        return output

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, None, None]:
        q_BHtK, own_2BHtK, output, logarithm = ctx.saved_tensors
        kind = logarithm.dtype
        gradient, of_q = gradient.to(kind), torch.zeros_like(q_BHtK, dtype=kind)
        of_divisor = (gradient * output.to(kind)).sum(-1, keepdim=True)
        scale = q_BHtK.shape[-1] ** -0.5

        def of_block(other: int, block: torch.Tensor) -> torch.Tensor:
            queries, keys = seen(ctx.rank, other, q_BHtK.shape[2])
            q, (k, v) = q_BHtK[..., queries, :].to(kind), block[..., keys, :].to(kind)
            of_mixed = gradient[..., queries, :]
            weights = (_scores(q, k, other == ctx.rank) - logarithm[..., queries, :]).exp()
            of_scores = weights * (of_mixed @ v.mT - of_divisor[..., queries, :]) * scale
            of_q[..., queries, :] += of_scores @ k
            of_keys = torch.zeros_like(block)
            of_keys[..., keys, :] = torch.stack((of_scores.mT @ q, weights.mT @ of_mixed)).to(block.dtype)
            return of_keys

        of_own = ctx.exchange.collect(own_2BHtK, of_block)
        return of_q.to(q_BHtK.dtype), of_own, None, None


def seen(rank: int, other: int, tokens: int) -> tuple[slice, slice]:
    """Returns which queries of a rank attend to which keys of a rank; with its own keys, the attention is causal.

    Args:
        rank: The rank that has the queries.
        other: The rank that has the keys.
        tokens: The number of positions of a rank; the first half is the early piece.
    """
    everything = slice(tokens)
    if other == rank:
        return everything, everything
    return (everything, slice(tokens // 2)) if other < rank else (slice(tokens // 2, tokens), everything)


def _scores(q_BHtK: torch.Tensor, k_BHtK: torch.Tensor, is_own: bool) -> torch.Tensor:
    """Returns the scores of keys, [B, H, queries, keys]; among a rank's own keys, later ones are masked.

    Args:
        q_BHtK: Queries.
        k_BHtK: Keys, of the same dtype.
        is_own: Whether queries and keys are of the same positions.
    """
    scores = q_BHtK @ k_BHtK.mT * q_BHtK.shape[-1] ** -0.5
    if not is_own:
        return scores
    later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
    return scores.masked_fill(later, -torch.inf)


def attend_in_blocks(
    exchange: Gather | Ring, rank: int, q_BHtK: torch.Tensor, k_BHtK: torch.Tensor, v_BHtK: torch.Tensor
) -> torch.Tensor:
    """Returns the values of all ranks mixed for the queries of this rank, [B, H, t, K].

    Args:
        exchange: How keys and values are exchanged.
        rank: The number of this rank, which determines its positions.
        q_BHtK: Queries of this rank.
        k_BHtK: Their keys.
        v_BHtK: Their values.
    """
    return _Attention.apply(q_BHtK, torch.stack((k_BHtK, v_BHtK)), exchange, rank)  # pyrefly: ignore
