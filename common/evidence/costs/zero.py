"""The ZeRO family: optimizer state, gradients and parameters spread over N ranks.

With P the parameter bytes, a step sends, over all ranks:

    zero1   2(N-1) P for DDP's all-reduce of the gradients, and (N-1) P for the broadcast of the parameters
    zero2   (N-1) P for one all-gather, after which a block stays full from its forward to its backward pass, and as much
            for the reduce-scatter
    fsdp    2(N-1) P for two all-gathers, since a block is full only while it computes, and (N-1) P for the reduce-scatter

Over gloo a reduce-scatter sends twice that, since gloo's is an all-reduce.

References:
    Rajbhandari et al., arXiv 1910.02054; Zhao et al., arXiv 2304.11277 (FSDP).
"""

import dataclasses
from collections.abc import Iterable, Sequence

from samestep.common.evidence.costs.data_parallel import DEFAULT_CAPS, bucketed
from samestep.common.evidence.costs.sizes import MESSAGE_BYTES, holder, merged, sent_bytes, shard_elements
from samestep.common.ledger import Exchange, Ledger
from samestep.common.strategy import Run
from samestep.common.workload.models.spec import ModelSpec, Param, parameters_of

_DUMMY_BYTES = 4
"""What a rank without parameters broadcasts: one float32 (torch 2.13)."""


def zero1(run: Run, backend: str) -> Ledger:
    """Each rank keeps the optimizer state of some full parameters, updates these, and broadcasts them.

    Args:
        run: What is trained.
        backend: "gloo" or "nccl".

    Returns:
        One footprint per rank, and DDP's exchanges with one broadcast per rank.
    """
    ledger, devices = bucketed(run, DEFAULT_CAPS, backend), run.num_devices
    # The parameter bytes that each rank updates: the largest parameter left goes to the rank that has the least.
    owned = [0] * devices
    for size in sorted((param.size for param in run.workload.model.params().values()), reverse=True):
        owned[owned.index(min(owned))] += size * run.item_bytes
    footprints = tuple(
        dataclasses.replace(each, optimizer_bytes=len(run.optimizer.slots) * own)
        for each, own in zip(ledger.footprints, owned, strict=True)
    )
    broadcast = Exchange("broadcast", devices, sum(own or _DUMMY_BYTES for own in owned))
    sent = (devices - 1) * (broadcast.bytes_per_step + devices * MESSAGE_BYTES[backend])
    return Ledger(footprints, (*ledger.exchanges, broadcast), ledger.sent_bytes_per_step + sent)


def zero2(run: Run, backend: str) -> Ledger:
    """Every block is gathered once a micro-batch and kept for its backward pass.

    Args:
        run: What is trained.
        backend: "gloo" or "nccl".

    Returns:
        One footprint per rank, and the collectives along both axes.
    """
    return _fully_sharded(run, gathers=1, backend=backend)


def fsdp(run: Run, backend: str) -> Ledger:
    """Every block is gathered for its forward pass, freed, and gathered again for its backward pass.

    Args:
        run: What is trained.
        backend: "gloo" or "nccl".

    Returns:
        One footprint per rank, and the collectives along both axes.
    """
    return _fully_sharded(run, gathers=2, backend=backend)


def _fully_sharded(run: Run, gathers: int, backend: str) -> Ledger:
    """Predicts shards along the axis `shard`, and replicas of them along `data`.

    Args:
        run: What is trained.
        gathers: How often a block is gathered per micro-batch; with 2 it is freed in between.
        backend: "gloo" or "nccl".
    """
    model, shards = run.workload.model, run.mesh.axis("shard")
    # What each rank hands over of a block: shards are padded to the size of the first.
    blocks = [_elements(params.values(), shards, 0) * run.item_bytes for params in gathered_together(model)]
    peak = _peak_gathered([shards * block for block in blocks], freed=gathers == 2, buffered=shards > 1)
    footprints = []
    for rank in range(run.num_devices):
        own = holder(run, _elements(model.params().values(), shards, rank % shards))
        footprints.append(dataclasses.replace(own, params_peak_bytes=own.params_bytes + peak))
    taken = _collectives(run, blocks, gathers * run.accumulation_steps)
    sent = sum((sent_bytes(each, ranks, backend) for ranks, each in taken), 0.0)
    return Ledger(tuple(footprints), merged([each for _, each in taken]), sent * run.num_devices)


def gathered_together(model: ModelSpec) -> list[dict[str, Param]]:
    """Lists the parameters of each block, and last those that are in none: they are gathered for the whole step."""
    blocks = [parameters_of(model, block) for block in model.blocks()]
    named = {name for block in blocks for name in block}
    rest = {name: param for name, param in model.params().items() if name not in named}
    return [block for block in (*blocks, rest) if block]


def _elements(params: Iterable[Param], shards: int, shard: int) -> int:
    return sum(shard_elements(param.shape, param.role, shards, shard) for param in params)


def _collectives(run: Run, blocks: Sequence[int], gathers: int) -> list[tuple[int, Exchange]]:
    """What a rank takes part in during a step, with the number of ranks that do.

    Args:
        run: What is trained.
        blocks: The bytes of a rank's shard of each block.
        gathers: How often a step gathers each block.
    """
    shards, replicas, total = run.mesh.axis("shard"), run.mesh.axis("data"), sum(blocks)
    taken: list[tuple[int, Exchange]] = []
    if shards > 1:
        taken.append((shards, Exchange("all_gather", gathers * len(blocks), gathers * total)))
        taken.append((shards, Exchange("reduce_scatter", len(blocks), shards * total)))
    if replicas > 1:
        taken += [(replicas, Exchange("all_reduce", 1, block)) for block in blocks]
    if shards > 1 and run.techniques.need_norm:  # each parameter's norm
        taken.append((shards, Exchange("all_reduce", 1, len(run.workload.model.params()) * run.item_bytes)))
    return taken


def _peak_gathered(blocks: Sequence[int], freed: bool, buffered: bool) -> int:
    """The most bytes of gathered blocks alive at once in a step.

    A block arrives in a buffer and is copied out of it. The buffer stays until the next block is copied out (torch
    2.13), so three blocks are alive at a time, counting copies.

    Args:
        blocks: The bytes of each, in order.
        freed: Whether a block is freed after its forward pass.
        buffered: Whether it arrives from other ranks; a single one copies its parameters all the same.
    """
    peak = kept = previous = 0
    for block in blocks:
        peak = max(peak, kept + block + (previous + block if buffered else 0))
        kept, previous = 0 if freed else kept + block, block
    return peak
