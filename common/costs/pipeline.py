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
from collections.abc import Iterable, Iterator, Sequence

from samestep.common.costs.saved_activations.activations import pipeline_activation_bytes
from samestep.common.costs.sizes import agreement, example_bytes, holder_of, sent_bytes
from samestep.common.ledger import Footprint, Ledger, Send, in_order
from samestep.common.strategy import Run
from samestep.common.workload.models.reached import carry_gradients
from samestep.common.workload.models.spec import Param, Segment, parameters_of, tied_segments
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
    # Autograd saves them on the threads of calls, where nothing counts them.
    footprints = tuple(dataclasses.replace(each, activations_bytes=None) for each in ledger.footprints)
    ledger = dataclasses.replace(ledger, footprints=footprints)
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
        backend: What carries its exchanges.
    """
    pipe = run.mesh.axis("pipe")
    ranks = SCHEDULES[schedule].stage_ranks(pipe)
    stages = group_segments(run.workload.model.segments(), len(ranks))
    rows = run.batch_size // run.accumulation_steps // microbatches
    sizes = [rows * math.prod(segments[-1].outputs) * run.item_bytes for segments in stages]
    messages = boundary_sends(sizes, count_tensors(stages), ranks, carried=carried(run, stages))
    sends = [
        messages[each]
        for each in passes_of(0, schedule, pipe, microbatches) * run.accumulation_steps
        if each in messages
    ]
    sent = (
        microbatches
        * run.accumulation_steps
        * sum(sent_bytes(send, backend, run.item_bytes) for send in messages.values())
    )
    for rank, send in tied_sends(run, stages, ranks):
        sends += [send] if rank == 0 else []
        sent += sent_bytes(send, backend, run.item_bytes)
    for send in agreement(run):
        sends.append(send)
        sent += pipe * sent_bytes(send, backend, run.item_bytes)
    if run.techniques.need_norm:
        squared_norm = Send("update", "all_reduce", "pipe", pipe, run.item_bytes)
        sends.append(squared_norm)
        sent += pipe * sent_bytes(squared_norm, backend, run.item_bytes)
    return Ledger(_footprints(run, schedule, microbatches), in_order(sends), sent)


def pp_footprints(run: Run) -> tuple[Footprint, ...]:
    """Predicts the memory of each rank of a pipeline."""
    return _footprints(run, run.options.schedule, run.options.microbatches)


def _footprints(run: Run, schedule: str, microbatches: int) -> tuple[Footprint, ...]:
    model, ranks = run.workload.model, SCHEDULES[schedule].stage_ranks(run.mesh.axis("pipe"))
    held: list[dict[str, Param]] = [{} for _ in range(run.mesh.axis("pipe"))]
    for segments, rank in zip(group_segments(model.segments(), len(ranks)), ranks, strict=True):
        held[rank] |= parameters_of(model, *segments)  # a tied one counts once
    return tuple(
        dataclasses.replace(holder_of(run, params.values()), activations_bytes=kept)
        for params, kept in zip(held, pipeline_activation_bytes(run, schedule, microbatches), strict=True)
    )


def tied_sends(
    run: Run, stages: Stages, ranks: Sequence[int], apart: int = 1, parts: int = 1
) -> Iterator[tuple[int, Send]]:
    """Predicts the halves of a tied parameter's gradient that the ranks of its first and its last stage hand each other.

    Args:
        run: What is trained.
        stages: The segments of each stage.
        ranks: The rank along the pipeline that holds each stage.
        apart: By how much two neighbours along the pipeline differ in their ranks of the run.
        parts: The number of ranks among which each stage's parameters are in equal parts.

    Yields:
        The rank along the pipeline, and what it sends.
    """
    for name, (first, *_, last) in tied_segments(run.workload.model).items():
        here, there = (next(r for s, r in zip(stages, ranks, strict=True) if user in s) for user in (first, last))
        size = run.workload.model.params()[name].size // parts * run.item_bytes
        for one, other in ((here, there), (there, here)) if here != there else ():
            yield one, Send("backward", "send", "pipe", max(ranks) + 1, size, to=str(other * apart))


def passes_of(rank: int, schedule: str, ranks: int, microbatches: int) -> list[tuple[str, int]]:
    """Lists the passes of a rank in order: the phase, and the stage of the model.

    Args:
        rank: The rank along the pipeline.
        schedule: The schedule.
        ranks: The number of ranks along the pipeline.
        microbatches: The number of micro-batches.
    """
    own = [stage for stage, holder in enumerate(SCHEDULES[schedule].stage_ranks(ranks)) if holder == rank]
    return [(phase, own[index]) for phase, index in PASSES[schedule](rank, ranks, microbatches)]


def carried(run: Run, stages: Stages) -> list[bool]:
    """Whether a gradient comes back for what each stage hands on: nothing up to there is trained, and none does.

    Args:
        run: What is trained.
        stages: The segments of each stage.
    """
    model = run.workload.model
    every = itertools.accumulate(stages, lambda before, stage: (*before, *stage))
    return [carry_gradients(model, segments) for segments in every]


def count_tensors(stages: Iterable[Sequence[Segment]]) -> list[int]:
    """The number of tensors that each stage hands on, with a message for each."""
    return [len(segments[-1].several) or 1 for segments in stages]


def boundary_sends(
    sizes: Sequence[int],
    counts: Sequence[int],
    ranks: Sequence[int],
    apart: int = 1,
    carried: Sequence[bool] = (),
) -> dict[tuple[str, int], Send]:
    """Predicts the messages with which each pass of a micro-batch through a stage ends, unless nobody else needs them.

    Args:
        sizes: The bytes of the activations that each stage hands on.
        counts: In how many tensors.
        ranks: The rank along the pipeline that holds each stage.
        apart: By how much two neighbours along the pipeline differ in their ranks of the run.
        carried: Whether a gradient comes back to each stage, as `carried` says; to all, unless given.

    Returns:
        (phase, stage) -> the messages, in one record.
    """
    found = {}
    for stage, (here, there) in enumerate(itertools.pairwise(ranks)):
        if here != there:
            message = Send("forward", "send", "pipe", max(ranks) + 1, sizes[stage], counts[stage], str(there * apart))
            found["forward", stage] = message
            if not carried or carried[stage]:
                found["backward", stage + 1] = dataclasses.replace(message, phase="backward", to=str(here * apart))
    return found
