"""Models split by layers: each rank holds some stages and hands activations on, gradients back.

With B bytes of activations (of the whole global batch) at a boundary between two ranks, a step sends B forward and B
back, however many micro-batches there are. A step of p ranks and m micro-batches idles for (p-1)/(m+p-1) of its time
under GPipe and 1F1B; v stages a rank divide the numerator by v.

References:
    Huang et al., arXiv 1811.06965 (GPipe); Narayanan et al., arXiv 2104.04473 (1F1B, interleaved); Lamy-Poirier,
    arXiv 2211.05953 (breadth-first, "looped BFS"); Qi et al., arXiv 2401.10241 (zero bubble, ZB-V); DeepSeek-AI, arXiv
    2412.19437 (DualPipe, whose V-shaped half is DualPipeV).
"""

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence

from common.config import RunConfig
from common.evidence.laws.collectives import ITEM_BYTES, MESSAGE_BYTES, all_reduce_bytes, framing_bytes
from common.ledger import Exchange, Footprint, Ledger
from common.mesh import Mesh
from common.workload.models.spec import Cut, ModelSpec, stages
from common.workload.table import Workload

CALLS_BYTES = 5500
"""About what torch 2.13 sends to and from each further RPC worker in a step besides tensors: pickled calls, replies."""


@dataclasses.dataclass(frozen=True)
class Schedule:
    """Where a schedule wants its stages.

    Attributes:
        stages_per_rank: How many.
        turns: Whether the stages come back the way they went, so that rank 0 holds the first and the last (a V).
    """

    stages_per_rank: int = 1
    turns: bool = False

    def holders(self, ranks: int) -> tuple[int, ...]:
        """The rank that holds each stage."""
        stages = range(ranks * self.stages_per_rank)
        return tuple(2 * ranks - 1 - s if self.turns and s >= ranks else s % ranks for s in stages)


SCHEDULES: Mapping[str, Schedule] = {
    "gpipe": Schedule(),
    "1f1b": Schedule(),
    "interleaved_1f1b": Schedule(2),
    "looped_bfs": Schedule(2),
    "interleaved_zero_bubble": Schedule(2),
    "zbv_zero_bubble": Schedule(2, turns=True),
    "dualpipev": Schedule(2, turns=True),
}


def holders_of(config: RunConfig) -> tuple[int, ...]:
    """The rank along the axis `pipe` that holds each stage; a row without schedules has one stage a rank."""
    schedule = SCHEDULES[str(config.options.get("schedule", "gpipe"))]
    return schedule.holders(Mesh.parse(config.mesh or "pipe=1").axis("pipe"))


def parameters_in(model: ModelSpec, cuts: Sequence[Cut]) -> list[str]:
    """The names of the parameters of some cuts."""
    return [name for name in model.params() if any(name.startswith(f"{cut.name}/") for cut in cuts)]


def pipelined(workload: Workload, config: RunConfig, backend: str) -> Ledger:
    """One or more stages a rank; micro-batches go through them.

    Args:
        workload: What is trained.
        config: A checked configuration.
        backend: "gloo" or "nccl".
    """
    item = ITEM_BYTES[config.dtype]
    holders = holders_of(config)
    grouped = stages(workload.model.cuts(), len(holders))
    params = workload.model.params()
    held = [0] * (max(holders) + 1)
    for cuts, rank in zip(grouped, holders, strict=True):
        held[rank] += sum(params[name].size for name in parameters_in(workload.model, cuts)) * item
    slots = len(workload.optimizer(config).slots)
    footprints = tuple(Footprint("each", size, size, size, slots * size, "law") for size in held)

    sends, sent = _boundaries(config, grouped, holders)
    microbatches = int(config.options.get("microbatches", 1) or 1) * config.techniques.micro_batches
    first = sends.get(0, (0, 0))
    exchanges = (Exchange("send", first[0] * microbatches, first[1]),) if first[0] else ()
    messages = sum(count for count, _ in sends.values()) * microbatches
    total: float = sent + messages * MESSAGE_BYTES[backend]
    if config.techniques.clip_norm is not None:  # the square of each rank's norm
        exchanges += (Exchange("all_reduce", 1, item),)
        total += len(held) * (all_reduce_bytes(item, len(held)) + framing_bytes("all_reduce", len(held), backend))
    return Ledger(footprints, exchanges, total)


def called(workload: Workload, config: RunConfig, backend: str) -> Ledger:
    """One stage a worker, reached by calls: the same memory, no collectives; the targets and the calls themselves on top.

    Args:
        workload: What is trained.
        config: A checked configuration.
        backend: "tensorpipe".
    """
    ledger = pipelined(workload, config, "memory")
    others = len(ledger.footprints) - 1
    targets = (config.batch_size or 0) * math.prod(workload.model.targets().shape) * 8 if others else 0
    sent = ledger.sent_bytes_per_step + targets + others * CALLS_BYTES
    return dataclasses.replace(ledger, exchanges=(), sent_bytes_per_step=sent)


def _boundaries(
    config: RunConfig, grouped: Sequence[Sequence[Cut]], holders: Sequence[int]
) -> tuple[dict[int, tuple[int, int]], int]:
    """Rank -> how many messages it sends per micro-batch and their bytes per step; and the bytes of all ranks."""
    sends: dict[int, tuple[int, int]] = {}
    for cuts, (here, there) in zip(grouped, itertools.pairwise(holders), strict=False):
        if here != there:
            size = (config.batch_size or 0) * math.prod(cuts[-1].outputs) * ITEM_BYTES[config.dtype]
            for rank in (here, there):  # activations forward, their gradients back
                count, total = sends.get(rank, (0, 0))
                sends[rank] = (count + 1, total + size)
    return sends, sum(total for _, total in sends.values())
