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
from collections.abc import Sequence

from samestep.common.evidence.costs.sizes import example_bytes, holder, sent_bytes
from samestep.common.ledger import Ledger, Send, in_order
from samestep.common.strategy import Run
from samestep.common.workload.models.spec import parameters_of
from samestep.common.workload.passes import PASSES
from samestep.common.workload.pipeline import SCHEDULES, Stages, group_segments

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
        One footprint per rank, and the sends of rank 0.
    """
    return _pipelined(run, run.options.schedule, run.options.microbatches, backend)


def rpc(run: Run, backend: str) -> Ledger:
    """Predicts what `mp` costs, plus the calls themselves; the targets go to the last worker, and the loss to the driver.

    Args:
        run: What is trained.
        backend: "tensorpipe".

    Returns:
        One footprint per worker, and the sends of the driver.
    """
    ledger, others, passes = mp(run, "memory"), run.num_devices - 1, run.accumulation_steps
    if not others:
        return ledger
    targets = run.batch_size * example_bytes(run.workload.model.targets(), run.item_bytes)
    last = str(others)
    (activations,) = (dataclasses.replace(send, count=1, bytes=send.bytes // passes) for send in ledger.sends)
    once = [Send("forward", "send", "pipe", others + 1, targets // passes, to=last), activations]
    losses = Send("backward", "send", "pipe", others + 1, passes * run.item_bytes, passes, to=last)
    sent = ledger.sent_bytes_per_step + targets + others * _CALLS_BYTES
    return dataclasses.replace(ledger, sends=in_order([*once * passes, losses]), sent_bytes_per_step=sent)


def _pipelined(run: Run, schedule: str, microbatches: int, backend: str) -> Ledger:
    """Predicts stages along the axis `pipe`.

    Args:
        run: What is trained.
        schedule: The schedule, which says where the stages are, and in which order they compute.
        microbatches: The number of micro-batches of an accumulation step.
        backend: A key of `MESSAGE_BYTES`.
    """
    model, pipe = run.workload.model, run.mesh.axis("pipe")
    ranks = SCHEDULES[schedule].stage_ranks(pipe)
    stages = group_segments(model.segments(), len(ranks))
    held = [0] * pipe
    for segments, rank in zip(stages, ranks, strict=True):
        held[rank] += sum(param.size for param in parameters_of(model, *segments).values())

    rows = run.batch_size // run.accumulation_steps // microbatches
    messages = boundary_sends(stages, ranks, rows * run.item_bytes)
    sends = [
        message
        for phase, stage in PASSES[schedule](0, pipe, microbatches) * run.accumulation_steps
        for message in messages.get((phase, [n for n, rank in enumerate(ranks) if rank == 0][stage]), ())
    ]
    sent = sum(sent_bytes(send, backend) for crossing in messages.values() for send in crossing)
    sent *= microbatches * run.accumulation_steps
    if run.techniques.need_norm:
        squared_norm = Send("update", "all_reduce", "pipe", pipe, run.item_bytes)
        sends.append(squared_norm)
        sent += pipe * sent_bytes(squared_norm, backend)
    return Ledger(tuple(holder(run, elements) for elements in held), in_order(sends), sent)


def boundary_sends(
    stages: Stages, ranks: Sequence[int], row_bytes: float
) -> dict[tuple[str, int], tuple[Send, ...]]:
    """Predicts the message that each pass of a micro-batch through a stage ends with: (phase, stage) -> it, if there is one.

    Args:
        stages: The segments of each stage.
        ranks: The rank that holds each stage.
        row_bytes: The bytes of one element of the activations of a micro-batch: its examples times those of a number.
    """
    found = {}
    for stage, (here, there) in enumerate(itertools.pairwise(ranks)):
        if here != there:
            size = int(row_bytes * math.prod(stages[stage][-1].outputs))
            forward = Send("forward", "send", "pipe", max(ranks) + 1, size, to=str(there))
            found["forward", stage] = (forward,)
            found["backward", stage + 1] = (dataclasses.replace(forward, phase="backward", to=str(here)),)
    return found
