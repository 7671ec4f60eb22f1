"""Models split by layers: each rank holds some stages and hands activations on, gradients back.

With B bytes of activations (of the full global batch) at a boundary between two ranks, a step sends B forward and B
back, however many micro-batches there are. A step of p ranks and m micro-batches idles for (p-1)/(m+p-1) of its time
under GPipe and 1F1B; v stages a rank divide the numerator by v. `common/workload/pipeline.py` has the schedules.

References:
    Huang et al., arXiv 1811.06965 (GPipe); Narayanan et al., arXiv 2104.04473 (1F1B, interleaved).
"""

import dataclasses
import itertools
import math

from samestep.common.evidence.costs.activations import pipeline_activation_bytes
from samestep.common.evidence.costs.sizes import example_bytes, holder, merged, sent_bytes
from samestep.common.ledger import Exchange, Ledger
from samestep.common.strategy import Run
from samestep.common.workload.models.spec import parameters_of
from samestep.common.workload.pipeline import SCHEDULES, group_segments

_CALLS_BYTES = 5500
"""About what torch 2.13 sends to and from each further RPC worker in a step besides tensors: pickled calls, replies."""


def mp(run: Run, backend: str) -> Ledger:
    """Predicts one stage per rank and one batch at a time: a pipeline with a single micro-batch per accumulation step.

    Args:
        run: What is trained.
        backend: "gloo" or "nccl".

    Returns:
        One footprint per rank, and the sends of rank 0.
    """
    return _pipelined(run, "gpipe", 1, backend)


def pp(run: Run, backend: str) -> Ledger:
    """Predicts one or more stages per rank, through which micro-batches go.

    Args:
        run: What is trained.
        backend: "gloo" or "nccl".

    Returns:
        One footprint per rank, and what rank 0 exchanges.
    """
    return _pipelined(run, run.options.schedule, run.options.microbatches, backend)


def rpc(run: Run, backend: str) -> Ledger:
    """Predicts what `mp` costs without collectives, plus the calls themselves; the targets go to the last worker.

    Args:
        run: What is trained.
        backend: "tensorpipe".

    Returns:
        One footprint per worker, and no exchanges.
    """
    ledger = mp(run, "memory")
    # Autograd saves them on the threads of calls, where nothing counts them.
    footprints = tuple(dataclasses.replace(each, activations_bytes=None) for each in ledger.footprints)
    others = run.num_devices - 1
    targets = run.batch_size * example_bytes(run.workload.model.targets(), run.item_bytes) if others else 0
    sent = ledger.sent_bytes_per_step + targets + others * _CALLS_BYTES
    return dataclasses.replace(ledger, footprints=footprints, exchanges=(), sent_bytes_per_step=sent)


def _pipelined(run: Run, schedule: str, microbatches: int, backend: str) -> Ledger:
    """Predicts stages along the axis `pipe`.

    Args:
        run: What is trained.
        schedule: A key of `SCHEDULES`, which says where the stages are.
        microbatches: The number of micro-batches of an accumulation step.
        backend: A key of `MESSAGE_BYTES`.
    """
    model, pipe = run.workload.model, run.mesh.axis("pipe")
    ranks = SCHEDULES[schedule].stage_ranks(pipe)
    stages = group_segments(model.segments(), len(ranks))
    held = [0] * pipe
    for segments, rank in zip(stages, ranks, strict=True):
        held[rank] += sum(param.size for param in parameters_of(model, *segments).values())

    sends: list[tuple[int, Exchange]] = []
    for segments, (here, there) in zip(stages, itertools.pairwise(ranks), strict=False):
        if here != there:  # activations forward, their gradients back
            size = run.batch_size * math.prod(segments[-1].outputs) * run.item_bytes
            sends += [(rank, Exchange("send", run.accumulation_steps * microbatches, size)) for rank in (here, there)]
    exchanges = merged(each for rank, each in sends if rank == 0)
    sent = sum(sent_bytes(each, 2, backend) for _, each in sends)
    if run.techniques.need_norm:
        squared_norm = Exchange("all_reduce", 1, run.item_bytes)
        exchanges += (squared_norm,)
        sent += pipe * sent_bytes(squared_norm, pipe, backend)
    footprints = tuple(
        dataclasses.replace(
            holder(run, elements), activations_bytes=pipeline_activation_bytes(run, schedule, microbatches, rank)
        )
        for rank, elements in enumerate(held)
    )
    return Ledger(footprints, exchanges, sent)
