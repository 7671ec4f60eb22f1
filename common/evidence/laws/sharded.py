"""The ZeRO family: optimizer slots, then gradients, then parameters spread over N ranks.

With P the parameter bytes, a step sends in all, over all ranks, in multiples of (N-1) P:

    zero1   2 (all-reduce of the gradients) + 1 (broadcast of the parameters)
    zero2   1 (all-gather) + 1 (reduce-scatter; over gloo 2, since gloo's is an all-reduce)
    fsdp    2 (all-gather in the forward and again in the backward pass) + 1 (reduce-scatter; over gloo 2)

References:
    Rajbhandari et al., arXiv 1910.02054; Zhao et al., arXiv 2304.11277 (FSDP).
"""

import dataclasses
from collections.abc import Sequence

from common.config import RunConfig
from common.evidence.laws.all_reduced import bucketed
from common.evidence.laws.collectives import (
    ITEM_BYTES,
    MESSAGE_BYTES,
    all_gather_bytes,
    all_reduce_bytes,
    framing_bytes,
    reduce_scatter_bytes,
)
from common.ledger import Exchange, Footprint, Ledger
from common.mesh import Mesh
from common.workload.models.spec import Cut, ModelSpec, Param
from common.workload.table import Workload

_DUMMY_BYTES = 4
"""What a rank without parameters broadcasts: one float32 (torch 2.13)."""


def slots_sharded(workload: Workload, config: RunConfig, backend: str) -> Ledger:
    """Each rank keeps the slots of some whole parameters, updates these, and broadcasts them.

    Args:
        workload: What is trained.
        config: A checked configuration.
        backend: "gloo" or "nccl".
    """
    ledger = bucketed(workload, config, backend)
    devices = len(ledger.footprints)
    owned = owned_bytes(workload, config, devices)
    slots = len(workload.optimizer(config).slots)
    footprints = tuple(
        dataclasses.replace(f, optimizer_bytes=slots * own) for f, own in zip(ledger.footprints, owned, strict=True)
    )
    sent = [own or _DUMMY_BYTES for own in owned]
    exchanges = (*ledger.exchanges, Exchange("broadcast", devices, sum(sent)))
    messages = (devices - 1) * devices
    broadcast = (devices - 1) * sum(sent) + messages * MESSAGE_BYTES[backend]
    return Ledger(footprints, exchanges, ledger.sent_bytes_per_step + broadcast)


def owned_bytes(workload: Workload, config: RunConfig, devices: int) -> list[int]:
    """The parameter bytes that each rank updates: the largest parameter left goes to the rank that has the least."""
    owned = [0] * devices
    for size in sorted((param.size for param in workload.model.params().values()), reverse=True):
        owned[owned.index(min(owned))] += size
    return [size * ITEM_BYTES[config.dtype] for size in owned]


def freed_between(workload: Workload, config: RunConfig, backend: str) -> Ledger:
    """FSDP: a block's parameters are whole only while it computes, in the forward and again in the backward pass.

    Args:
        workload: What is trained.
        config: A checked configuration.
        backend: "gloo" or "nccl".
    """
    return _fully_sharded(workload, config, backend, gathers=2)


def kept_whole(workload: Workload, config: RunConfig, backend: str) -> Ledger:
    """ZeRO-2: a block's parameters are whole from its forward to its backward pass.

    Args:
        workload: What is trained.
        config: A checked configuration.
        backend: "gloo" or "nccl".
    """
    return _fully_sharded(workload, config, backend, gathers=1)


def _fully_sharded(workload: Workload, config: RunConfig, backend: str, gathers: int) -> Ledger:
    mesh = Mesh.parse(config.mesh or "shard=1")
    shards, replicas = mesh.axis("shard"), mesh.axis("data")
    item, micro = ITEM_BYTES[config.dtype], config.techniques.micro_batches
    slots = len(workload.optimizer(config).slots)
    blocks = [_shard_elements(workload.model, cut, shards) * item for cut in workload.model.cuts()]
    gathered = [shards * block for block in blocks]  # padded to equal shards
    peak = peak_gathered(gathered, freed=gathers == 2, buffered=shards > 1)

    footprints = []
    for rank in range(mesh.size):
        own = sum(_own_elements(param, name, shards, rank % shards) for name, param in workload.model.params().items())
        footprints.append(Footprint("each", own * item, own * item + peak, own * item, slots * own * item, "law"))
    gathers *= micro
    exchanges = []
    sent = 0.0
    if shards > 1:
        exchanges.append(Exchange("all_gather", gathers * len(blocks), gathers * sum(blocks)))
        exchanges.append(Exchange("reduce_scatter", len(blocks), sum(gathered)))
        sent += gathers * all_gather_bytes(sum(blocks), shards)
        sent += gathers * len(blocks) * framing_bytes("all_gather", shards, backend)
        sent += reduce_scatter_bytes(sum(gathered), shards, backend)
        sent += len(blocks) * framing_bytes("reduce_scatter", shards, backend)
    reduced = [(replicas, block) for block in blocks] if replicas > 1 else []
    if shards > 1 and config.techniques.clip_norm is not None:
        reduced.append((shards, len(workload.model.params()) * item))  # each parameter's norm
    if reduced:
        exchanges.append(Exchange("all_reduce", len(reduced), sum(size for _, size in reduced)))
        sent += sum(
            all_reduce_bytes(size, ranks) + framing_bytes("all_reduce", ranks, backend) for ranks, size in reduced
        )
    return Ledger(tuple(footprints), tuple(exchanges), sent * mesh.size)


def peak_gathered(blocks: Sequence[int], freed: bool, buffered: bool) -> int:
    """The most bytes of gathered blocks alive at once in a step.

    A block arrives in a buffer and is copied out of it; the buffer stays until the next block is copied out (torch 2.13),
    so that three blocks are alive at a time, counting copies.

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


def _rows(name: str, param: Param) -> int:
    """The size of the dimension that is sharded: torch's first is the neutral layout's last for kernels."""
    return param.shape[-1] if name.endswith("/kernel") else param.shape[0]


def _own_elements(param: Param, name: str, shards: int, rank: int) -> int:
    rows = _rows(name, param)
    each = -(-rows // shards)
    return min(each, max(0, rows - rank * each)) * (param.size // rows)


def _shard_elements(model: ModelSpec, cut: Cut, shards: int) -> int:
    """What each rank hands over of a block: shards are padded to the size of the first."""
    params = {name: param for name, param in model.params().items() if name.startswith(f"{cut.name}/")}
    return sum(_own_elements(param, name, shards, 0) for name, param in params.items())
