"""The peak of the activations that a device saves between the forward and the backward pass, predicted from the spec alone.

What each layer keeps is in the lists that a framework's catalogue names (`kept_torch.py`, `kept_torch_mixed.py`, `kept_tf.py`).
Here it is multiplied by the examples that are in flight:

    one replica      its shard of the batch; of accumulation steps, one at a time in torch, where they follow each other, and
                     all of them in TensorFlow, where nothing in the graph makes one wait for another
    tensor           the same, but activations inside the pairs of layers are in parts
    context          the same, for a model with fewer positions
    pipe             the rank's own stages, times the micro-batches that the schedule has in flight

Korthikanti et al. count the same 16 D numbers for each position and block that torch keeps, and in addition two dropout masks
(we have none) and, without fused attention, three tensors of scores, H T each: see `textbook_block_bytes`. Where the sequence
is split, torch keeps the inputs that it gathered for each pair of layers; Megatron keeps its part and gathers again.

References:
    Korthikanti et al., arXiv 2205.05198, sections 4.1 and 4.2.
"""

import collections
import functools
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence

from samestep.common.axes.axis import Keeps
from samestep.common.axes.used import as_left, segments_left, splits_between, used
from samestep.common.catalog import framework_info
from samestep.common.costs.saved_activations.copies import keeps_wide
from samestep.common.costs.saved_activations.kept_lists import keep_again, keep_inputs
from samestep.common.costs.saved_activations.peak import (
    ONE,
    KeptByStage,
    KeptBytes,
    Peaks,
    in_flight,
    largest,
    peak_bytes,
)
from samestep.common.features.used import keeps_buffers
from samestep.common.strategy import Run
from samestep.common.techniques.used import computed_twice, replaces_code
from samestep.common.workload.models.block_sizes import BlockSizes
from samestep.common.workload.models.spec import ModelSpec, Segment
from samestep.common.workload.pipeline_schedule import stages_of_ranks
from samestep.common.workload.saved import AHEAD, BEHIND, LOSS, Kept, SavedLists, keep_all


def activation_bytes(
    run: Run,
    stages: Sequence[Sequence[Segment]] = (),
    microbatches: int = 1,
    peaks: Peaks = ONE,
    as_it_comes: bool = False,
) -> int | None:
    """Predicts the most bytes that a device keeps at once; None if no list says what is kept, or a compiler decides it.

    Args:
        run: What is trained; its mesh says which part of the batch, and of layers, a device has.
        stages: The segments of each stage that the device holds; by default one stage with all of them.
        microbatches: The number of micro-batches that a pipeline cuts an accumulation step into.
        peaks: Candidates for the micro-batches in flight, as in `peak_bytes`.
        as_it_comes: Whether linear layers keep their inputs uncast; others keep casts of them.
    """
    kept, lists = kept_by_stage(run, stages, as_it_comes), framework_info(run.framework).saved(run, as_it_comes)
    if kept is None or lists is None:
        return None
    rows, together = run.batch_size // (run.mesh.replicas * run.passes), 1 if lists.in_order else run.passes
    return together * peak_bytes(kept, rows, microbatches, peaks)


def kept_by_stage(
    run: Run, stages: Sequence[Sequence[Segment]] = (), as_it_comes: bool = False
) -> tuple[KeptByStage, ...] | None:
    """Adds up what each stage keeps, for any number of examples; the arguments are those of `activation_bytes`."""
    more, run = tuple(axis.keeps(run) for axis in used(run.mesh)), as_left(run)
    twice, lists = bool(computed_twice(run)), framework_info(run.framework).saved(run, as_it_comes)
    item_bytes, model, parts = run.product_bytes, run.workload.model, run.mesh.parts("features")
    if lists is None or model.name not in lists.kept or replaces_code(run.techniques):
        return None
    about = (lists, model, item_bytes, parts, splits_between(run), not keeps_buffers(run))
    whole = _each(keep_again if twice else keep_all, *about, more)
    if twice and any(name.endswith(AHEAD) for name in whole):
        return None
    if twice and lists.copies and run.mesh.parts("layers") > 1 and not keeps_wide(model):
        return None  # a stage's inputs are float32, and its products keep a copy of them
    kept = _each(keep_inputs, *about, ()) if twice else whole
    held = [segments_left(run, stage) for stage in stages] or [model.segments()]
    again = whole if twice and lists.in_order else {}
    return tuple(_of_stage(model, stage, held, kept, again) for stage in held)


def _of_stage(
    model: ModelSpec,
    stage: Sequence[Segment],
    held: Sequence[Sequence[Segment]],
    kept: Mapping[str, KeptBytes],
    whole: Mapping[str, KeptBytes],
) -> KeptByStage:
    """Adds up what one stage of a device keeps; `whole` is what recomputed segments keep while they are recomputed."""
    segments, here = model.segments(), {segment for each in held for segment in each}
    *names, last = [name for segment in stage for name in (segment.name, f"{segment.name}{BEHIND}")]
    if (place := segments.index(stage[0])) == 0 or segments[place - 1] not in here:
        names = [f"{stage[0].name}{AHEAD}", *names]
    now = _add_up([*names, last, *([LOSS] if segments[-1] in stage else [])], kept)
    again, reached = list[KeptBytes](), KeptBytes()
    for segment in stage if whole else ():
        # While one segment is recomputed, those behind it are done; a graph does this within its backward pass.
        own = [segment.name, f"{segment.name}{BEHIND}"]
        again.append(reached.plus(_add_up(own, whole)).plus(now, -1))
        reached = reached.plus(_add_up(own, kept))
    return KeptByStage(now, _add_up(names, kept), largest(again))


def _add_up(names: Iterable[str], kept: Mapping[str, KeptBytes]) -> KeptBytes:
    there = [kept[name] for name in names if name in kept]
    return KeptBytes(*(sum(own) for own in zip(*there, strict=True)))


@functools.lru_cache(maxsize=512)  # every rank of a pipeline asks, and a search asks for thousands of pipelines
def _each(
    listed: Callable[[SavedLists, ModelSpec, int], Mapping[str, Kept]],
    lists: SavedLists,
    model: ModelSpec,
    item_bytes: int,
    parts: int,
    splits_sequence: bool,
    has_statistics: bool,
    of_axes: Sequence[Keeps],
) -> Mapping[str, KeptBytes]:
    """Returns what each part of a model keeps on a device; frozen statistics of a micro-batch are not kept."""
    kept, more = listed(lists, model, item_bytes), collections.Counter[str]()
    for segment, keeps in itertools.product(model.segments(), of_axes):
        more[segment.name] += keeps(model, segment, item_bytes, parts)
    return {
        name: KeptBytes(
            item_bytes * elements + more[name] + masks,
            each.fixed_bytes + each.copied_bytes // parts + has_statistics * each.statistics_bytes,
            each.batch_bytes,
        )
        for name, each in kept.items()
        for elements, masks in [each.on_rank(parts, splits_sequence)]
    }


def pipeline_activation_bytes(run: Run, schedule: str, microbatches: int) -> list[int | None]:
    """Predicts the most bytes that each rank of a pipeline keeps at once.

    Args:
        run: What is trained.
        schedule: A key of `SCHEDULES`.
        microbatches: The number of micro-batches of an accumulation step.

    Returns:
        One number for each place along the axis `pipe`.
    """
    by_rank = stages_of_ranks(run.workload.model, schedule, run.mesh)
    return [
        activation_bytes(run, stages, microbatches, in_flight(schedule, len(by_rank), rank, microbatches))
        for rank, stages in enumerate(by_rank)
    ]


def textbook_block_bytes(
    sizes: BlockSizes, rows: int, item_bytes: int, parts: int = 1, sequence: bool = False
) -> float:
    """Returns the textbook's bytes of one transformer block: s b h (34 + 5 a s / h) at two bytes for each number.

    The textbook's block has dropout, whose masks take one byte for each element, and keeps all scores of the attention.

    Args:
        sizes: The sizes of the blocks.
        rows: The number of examples.
        item_bytes: The bytes of a number.
        parts: The size of the axis `tensor`.
        sequence: Whether the sequence is split along it.

    References:
        Korthikanti et al., arXiv 2205.05198, equations 1, 2 and 4, with 16 numbers and 2 masks for their 34 bytes.
    """
    tokens = rows * sizes.context * sizes.width
    whole, split = 4 * item_bytes + 2, 12 * item_bytes  # 16 numbers, of which 12 are within pairs, and 2 masks
    scores = sizes.heads * sizes.context**2 * rows * (2 * item_bytes + 1)
    return tokens * whole / (parts if sequence else 1) + (tokens * split + scores) / parts
