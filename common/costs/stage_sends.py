"""What the stages of a pipeline send each other: activations and their gradients, and halves of tied gradients.

With B bytes of activations (of the full global batch) at a boundary between two ranks, a step sends B forward and B
back, however many micro-batches there are. A step of p ranks and m micro-batches idles for (p-1)/(m+p-1) of its time
under GPipe and 1F1B; v stages a rank divide the numerator by v. `common/workload/pipeline_schedule.py` has the schedules.

References:
    Huang et al., arXiv 1811.06965 (GPipe); Narayanan et al., arXiv 2104.04473 (1F1B, interleaved).
"""

import dataclasses
import itertools
from collections.abc import Iterator, Sequence

from samestep.common.ledger import Send
from samestep.common.strategy import Run
from samestep.common.workload.models.parameters import carry_gradients
from samestep.common.workload.models.spec import shared_parameters
from samestep.common.workload.passes import PASSES
from samestep.common.workload.pipeline_schedule import SCHEDULES, Stages


def shared_sends(
    run: Run, stages: Stages, ranks: Sequence[int], apart: int = 1, parts: int = 1
) -> Iterator[tuple[int, Send]]:
    """Predicts the halves of a tied parameter's gradient that the ranks of its first and its last stage send each other.

    Args:
        run: What is trained.
        stages: The segments of each stage.
        ranks: The rank along the pipeline that holds each stage.
        apart: The difference between the ranks of two neighbours along the pipeline.
        parts: The number of equal parts in which ranks hold each stage's parameters.

    Yields:
        The rank along the pipeline, and what it sends.
    """
    for name, (first, *_, last) in shared_parameters(run.workload.model).items():
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


def boundary_sends(
    run: Run, stages: Stages, ranks: Sequence[int], apart: int, sizes: Sequence[int]
) -> dict[tuple[str, int], Send]:
    """Predicts the messages that each pass of a micro-batch through a stage sends to another stage when it ends.

    No gradient comes back for activations that depend on no trained parameter.

    Args:
        run: What is trained.
        stages: The segments of each stage; every output tensor of a stage is a message.
        ranks: The rank along the pipeline that holds each stage.
        apart: The difference between the ranks of two neighbours along the pipeline.
        sizes: The bytes of the activations that each stage hands on.

    Returns:
        (phase, stage) -> the messages, in one record.
    """
    found, through = {}, itertools.accumulate(stages, lambda before, stage: (*before, *stage))
    for stage, ((here, there), segments) in enumerate(zip(itertools.pairwise(ranks), through, strict=False)):
        if here != there:
            count = len(segments[-1].several) or 1
            message = Send("forward", "send", "pipe", max(ranks) + 1, sizes[stage], count, str(there * apart))
            found["forward", stage] = message
            if carry_gradients(run.workload.model, segments):
                found["backward", stage + 1] = dataclasses.replace(message, phase="backward", to=str(here * apart))
    return found
