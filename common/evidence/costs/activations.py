"""What a step keeps between its forward and its backward pass, layer by layer, from the spec alone.

An operation keeps what its own gradient needs. In torch 2.13 (tools/autograd/derivatives.yaml), each piece of memory once,
however many operations keep it, and no parameter:

    linear            its input: the gradient of its kernel
    convolution       its input
    GELU              its input, not its output, which the next layer keeps as its own input
    average pooling   its input
    layer norm        its input, and a mean and a reciprocal deviation for each position
    attention         q, k, v, its output, and for each head and position the log of the sum of its softmax; never the scores
    cross-entropy     the log-probabilities and the targets
    embedding         the ids

A transformer's block keeps 16 D + H + 4 elements a position: norms 2 (D + 2), inputs of linear layers D + D + 4 D + D, q, k
and v 3 D, input of the GELU 4 D, sums H. Korthikanti et al. count the same 16 D; beside them two masks of dropout (we have
none) and, without a fused attention, scores of H T: see `textbook_block_bytes`.

Along `tensor`, what lies between a layer split by column and the one split by row behind it is in parts; inputs of the first
and outputs of the second are whole on every rank. Stages keep what their own segments keep, for each micro-batch in flight.

References:
    Korthikanti et al., arXiv 2205.05198, sections 4.1 and 4.2; Dao et al., arXiv 2205.14135 (the fused attention).
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence

from samestep.common.evidence.costs.sizes import ID_BYTES, example_bytes
from samestep.common.strategy import Run
from samestep.common.workload.in_flight import Peaks, in_flight
from samestep.common.workload.models.cnn import CnnSpec
from samestep.common.workload.models.mlp import MlpSpec
from samestep.common.workload.models.ranker import RankerSpec
from samestep.common.workload.models.spec import ModelSpec, Segment, num_positions
from samestep.common.workload.models.transformer import TransformerSpec
from samestep.common.workload.pipeline import SCHEDULES, group_segments


@dataclasses.dataclass(frozen=True)
class Kept:
    """What one part of a model keeps of each example, in elements.

    Attributes:
        whole: On every rank of the axis `tensor`.
        parts: In equal parts along it.
        sequence: In equal parts along it if the sequence is split as well, else whole.
        fixed_bytes: Of each micro-batch, however many examples it has.
    """

    whole: int = 0
    parts: int = 0
    sequence: int = 0
    fixed_bytes: int = 0

    def elements(self, num_parts: int, splits_sequence: bool) -> int:
        """Adds up the elements of one rank.

        Args:
            num_parts: The size of the axis `tensor`.
            splits_sequence: Whether the sequence is split along it.
        """
        return self.whole + self.parts // num_parts + self.sequence // (num_parts if splits_sequence else 1)


def _mlp(model: MlpSpec) -> dict[str, Kept]:
    """Lists each layer's input, except the first's, which is data; and the input of the GELU behind each but the last."""
    kept, last = {}, model.layers - 1
    for i in range(model.layers):
        entering, leaving = (model.width if i else 0), (model.width if i < last else 0)
        by_row = i % 2 == 1
        kept[f"layers/{i}"] = Kept(leaving, parts=entering) if by_row else Kept(entering, parts=leaving)
    return kept


def _cnn(model: CnnSpec) -> dict[str, Kept]:
    """Lists for each block what convolution (not the first), GELU and pooling take; then the two linear layers."""
    pixels, channels = math.prod(model.image[:2]), model.filters
    return {
        "blocks/0": Kept(2 * pixels * channels),
        "blocks/1": Kept(pixels // 4 * channels + 2 * (pixels // 4) * 2 * channels),
        "hidden": Kept(pixels // 16 * 2 * channels, parts=model.hidden),
        "output": Kept(parts=model.hidden),
    }


def _ranker(model: RankerSpec) -> dict[str, Kept]:
    """Lists what the three linear layers and the two GELUs take."""
    return {
        "tables": Kept(),
        "hidden/0": Kept(len(model.rows()) * model.embedding, parts=model.hidden),
        "hidden/1": Kept(model.hidden // 2, parts=model.hidden),
        "output": Kept(model.hidden // 2),
    }


def _transformer(model: TransformerSpec) -> dict[str, Kept]:
    """Lists per position: a block keeps 2 D for its pairs' inputs, 2 (D + 2) for norms, and 12 D + H inside the pairs."""
    tokens, width = model.context, model.width
    block = Kept(
        whole=tokens * 2 * width,
        parts=tokens * (12 * width + model.heads),
        sequence=tokens * 2 * (width + 2),
    )
    return {
        "embedding": Kept(fixed_bytes=tokens * ID_BYTES),  # the positions are looked up by number
        **{f"blocks/{i}": block for i in range(model.layers)},
        "head": Kept(whole=tokens * width, sequence=tokens * (width + 2)),
    }


_TORCH: Mapping[str, Callable[..., dict[str, Kept]]] = {
    "mlp": _mlp,
    "cnn": _cnn,
    "ranker": _ranker,
    "transformer": _transformer,
}


def _loss(model: ModelSpec, item_bytes: int) -> Kept:
    """What the loss keeps beside the targets of the batch; a transformer's logits are in parts."""
    outputs = math.prod(model.segments()[-1].outputs)
    if model.loss == "binary_cross_entropy":  # logits, and targets as real numbers
        return Kept(2 * num_positions(model))
    if model.loss == "mean_squared_error":
        return Kept(outputs)
    sum_of_weights = item_bytes
    return Kept(
        *((0, outputs) if model.name == "transformer" else (outputs, 0)),
        fixed_bytes=sum_of_weights,
    )


def activation_bytes(
    run: Run,
    stages: Sequence[Sequence[Segment]] = (),
    microbatches: int = 1,
    peaks: Peaks = ((1,),),
    splits_sequence: bool = False,
) -> int:
    """Predicts the most bytes that a device keeps at once; accumulation steps follow each other, so one of them counts.

    Args:
        run: What is trained; its mesh says which part of the batch, and of layers, a device has.
        stages: The segments of each stage that the device holds; one stage of all of them, unless given.
        microbatches: The number of micro-batches that a pipeline cuts its part of the batch into.
        peaks: Candidates for the micro-batches of each stage in flight, as `in_flight` has them.
        splits_sequence: Whether the sequence is split along the axis `tensor`.
    """
    model, mesh = run.workload.model, run.mesh
    segments, parts = model.segments(), mesh.axis("tensor")
    stages = stages or (segments,)
    rows = run.batch_size // (mesh.axis("data") * mesh.axis("shard") * run.accumulation_steps)
    kept, loss = _TORCH[model.name](model), _loss(model, run.item_bytes)

    def stage_bytes(stage: Sequence[Segment]) -> int:
        each = [kept[segment.name] for segment in stage] + ([loss] if segments[-1] in stage else [])
        elements = sum(one.elements(parts, splits_sequence) for one in each)
        return rows // microbatches * elements * run.item_bytes + sum(one.fixed_bytes for one in each)

    sizes = [stage_bytes(stage) for stage in stages]
    peak = max(sum(count * size for count, size in zip(counts, sizes, strict=True)) for counts in peaks)
    held = {segment.name for stage in stages for segment in stage}
    return peak + rows * _batch_bytes(run, segments[0].name in held, segments[-1].name in held)


def _batch_bytes(run: Run, has_first: bool, has_last: bool) -> int:
    """The bytes of an example's inputs and targets that operations keep; micro-batches are views of the same memory."""
    model, size = run.workload.model, 0
    if has_first:
        size += example_bytes(model.inputs(), run.item_bytes)
    if has_last and model.loss != "binary_cross_entropy":
        size += example_bytes(model.targets(), run.item_bytes)
    return size


def pipeline_activation_bytes(run: Run, schedule: str, microbatches: int, rank: int) -> int:
    """Predicts the most bytes that a rank of a pipeline keeps at once.

    Args:
        run: What is trained.
        schedule: A key of `SCHEDULES`.
        microbatches: The number of micro-batches that go through together.
        rank: The place of the rank along the axis `pipe`.
    """
    ranks = run.mesh.axis("pipe")
    holders = SCHEDULES[schedule].stage_ranks(ranks)
    grouped = group_segments(run.workload.model.segments(), len(holders))
    stages = [stage for stage, holder in zip(grouped, holders, strict=True) if holder == rank]
    return activation_bytes(run, stages, microbatches, in_flight(schedule, ranks, rank, microbatches))


def textbook_block_bytes(model: TransformerSpec, rows: int, item_bytes: int, parts: int = 1, sequence: bool = False) -> float:
    """The textbook's bytes of one transformer block: s b h (34 + 5 a s / h) at two bytes a number.

    It has dropout, whose masks take one byte an element, and keeps all scores of the attention.

    Args:
        model: The spec.
        rows: Examples.
        item_bytes: The bytes of a number.
        parts: The size of the axis `tensor`.
        sequence: Whether the sequence is split along it.

    References:
        Korthikanti et al., arXiv 2205.05198, equations 1, 2 and 4, with 16 numbers and 2 masks for their 34 bytes.
    """
    tokens = rows * model.context * model.width
    whole, split = 4 * item_bytes + 2, 12 * item_bytes  # without the masks: 16 numbers, of which 12 are within pairs
    scores = model.heads * model.context**2 * rows * (2 * item_bytes + 1)
    return tokens * whole / (parts if sequence else 1) + (tokens * split + scores) / parts
