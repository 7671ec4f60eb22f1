"""Everything in N shards: a block's parameters are full only while it computes, forwards and again backwards.

With P the parameter bytes, a step sends, over all ranks, 2(N-1) P for two all-gathers and (N-1) P for the
reduce-scatter; over gloo twice that, since gloo's is an all-reduce.

References:
    Rajbhandari et al., arXiv 1910.02054; Zhao et al., arXiv 2304.11277 (FSDP).
"""

import dataclasses
from collections.abc import Iterable, Sequence

from samestep.common.evidence.costs.collectives import merged, sent_bytes
from samestep.common.evidence.costs.sizes import holder, shard_elements
from samestep.common.ledger import Exchange, Ledger
from samestep.common.strategy import Run
from samestep.common.workload.models.spec import Param, parameters_of


def cost(run: Run, backend: str) -> Ledger:
    """Every block is gathered for its forward pass, freed, and gathered again for its backward pass.

    Args:
        run: What is trained.
        backend: "gloo" or "nccl".

    Returns:
        One footprint per rank, and the collectives along both axes.
    """
    return fully_sharded(run, gathers=2, backend=backend)


def fully_sharded(run: Run, gathers: int, backend: str) -> Ledger:
    """Shards along the axis `shard`, replicas of them along `data`.

    Args:
        run: What is trained.
        gathers: How often a block is gathered per micro-batch; with 2 it is freed in between.
        backend: "gloo" or "nccl".
    """
    model, shards = run.workload.model, run.mesh.axis("shard")
    # What each rank hands over of a block: shards are padded to the size of the first.
    blocks = [_elements(parameters_of(model, s).values(), shards, 0) * run.item_bytes for s in model.segments()]
    peak = _peak_gathered([shards * block for block in blocks], freed=gathers == 2, buffered=shards > 1)
    footprints = []
    for rank in range(run.num_devices):
        own = holder(run, _elements(model.params().values(), shards, rank % shards))
        footprints.append(dataclasses.replace(own, params_peak_bytes=own.params_bytes + peak))
    taken = _collectives(run, blocks, gathers * run.accumulation_steps)
    sent = sum((sent_bytes(each, ranks, backend) for ranks, each in taken), 0.0)
    return Ledger(tuple(footprints), merged([each for _, each in taken]), sent * run.num_devices)


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
