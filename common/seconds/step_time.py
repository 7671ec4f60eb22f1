"""The seconds of one optimizer step of a transformer on a machine, in parts that add up.

A replica takes its n micro-batches one after the other; with p stages the last of them starts p-1 passes late:

    n (stage + head) + (p-1) stage        computing and exchanging along `tensor`; the head is on the last stage, and takes
                                          longer than the embedding on the first, of which one micro-batch is counted
    (n+p-2) sends                         of activations one way while gradients go the other way
    exchange                              of gradients and parameters along `data` and `shard`, as far as nothing hides it
    update                                of what a GPU holds

References:
    Narayanan et al., arXiv 2104.04473, sections 2.2 and 3; Qi et al., arXiv 2401.10241, table 2 (bubbles without idle
    weights); DeepSeek-AI, arXiv 2412.19437, table 2 (DualPipe); Rajbhandari et al., arXiv 1910.02054, section 7.
"""

import dataclasses
import functools
import math
from collections.abc import Mapping

from samestep.common.axes.used import exchanging_in_blocks
from samestep.common.seconds.block_time import BlockPart, Passes, block_time, embedding_seconds, head_time
from samestep.common.seconds.data_exchange import Computed, data_exchange
from samestep.common.seconds.exchange_seconds import send_seconds, spans_nodes
from samestep.common.seconds.layout import Layout, SumGroup
from samestep.common.seconds.machine import Machine
from samestep.common.seconds.products import ITEM
from samestep.common.workload.models.block_sizes import BlockSizes
from samestep.common.workload.pipeline_schedule import SCHEDULES

_PUT_OFF_BUBBLE = 1 / 3
"""The share of the bubble that remains with a schedule that defers the gradients of weights."""
_UPDATE_BYTES = 36
"""The bytes read and written for each parameter: 28 by Adam in mixed precision, 8 to check, scale and clear gradients."""


@dataclasses.dataclass(frozen=True)
class StepTime:
    """The parts of a step, in seconds. Time in which one part hides another is counted once, so the parts add up.

    Attributes:
        compute: Matrix products and what lies between them, on the slowest stage.
        tensor_exchange: All-reduces along `tensor`.
        pipeline_bubble: The time in which a stage waits for the first or the last micro-batches.
        pipeline_sends: The sends between stages.
        data_exchange: The exchange of gradients and parameters along `data` and `shard`, as far as nothing hides it.
        optimizer: The update.
        beside: Further axis, along which blocks run all-to-alls -> the seconds of these.
    """

    compute: float
    tensor_exchange: float
    pipeline_bubble: float
    pipeline_sends: float
    data_exchange: float
    optimizer: float
    beside: Mapping[str, float] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(cls, parts: Mapping[str, float]) -> "StepTime":
        """Returns the step that has these parts, named as `parts` names them."""
        beside = {name: parts[f"{name}_exchange"] for name in exchanging_in_blocks()}
        return cls(**{name: parts[name] for name in _OWN_PARTS}, beside=beside)

    @functools.cached_property
    def total(self) -> float:
        """The whole step."""
        return sum(self.parts().values())

    def parts(self) -> Mapping[str, float]:
        """Returns the seconds of each part, by name."""
        own: dict[str, float] = {name: getattr(self, name) for name in _OWN_PARTS}
        return own | {f"{name}_exchange": self.beside.get(name, 0.0) for name in exchanging_in_blocks()}


_OWN_PARTS = tuple(field.name for field in dataclasses.fields(StepTime) if field.name != "beside")
"""The parts that every step has."""


def step_time(shape: BlockSizes, layout: Layout, machine: Machine) -> StepTime:
    """Predicts the parts of a step.

    Args:
        shape: The shape of the model.
        layout: How the step is spread.
        machine: The machine that it runs on.
    """
    rows, count, pipe = layout.microbatch_size, layout.microbatches, layout.pipe
    layers, here = math.ceil(shape.layers / pipe), rows / layout.beside.parts("positions")
    stage, head = _stage(shape, layout, layers, machine), head_time(shape, here, layout.tensor, machine)
    embedding = embedding_seconds(shape, here, layout.tensor, machine) * (count if pipe == 1 else 1)
    schedule = SCHEDULES[layout.schedule]
    stages = schedule.stages_per_rank
    # each rank sends its part, as in Megatron and DeepSpeed
    message = here * shape.context * shape.width * ITEM / layout.tensor
    send = send_seconds(machine, message, layout.num_gpus // pipe, layout.num_gpus) if pipe > 1 else 0.0
    sizes = _sizes(shape, layout, layers)
    exposed = stage.seconds - stage.alone + head.seconds - head.alone
    link = "network" if spans_nodes(machine, layout.tensor, 1) else "node"
    forward = (stage.alone + head.alone) / (2 + layout.forward_passes)
    passes = Computed(layers, forward, stage.alone + head.alone - forward, {link: exposed})
    held = sum(
        params / group.shards / (group.replicas if layout.shards_replicas else 1) for group, params in sizes.items()
    )
    return StepTime(
        compute=count * (stage.alone + head.alone),
        tensor_exchange=count * exposed + embedding,
        pipeline_bubble=(pipe - 1) / stages * (_PUT_OFF_BUBBLE if schedule.delays_weights else 1.0) * stage.whole,
        pipeline_sends=(count + pipe - 2) * stages * send,
        data_exchange=data_exchange(layout, sizes, passes, machine),
        optimizer=_UPDATE_BYTES * held / (machine.memory_bytes_per_second * machine.memory_share),
        beside={name: count * seconds for name, seconds in stage.beside.items()},
    )


def _stage(shape: BlockSizes, layout: Layout, layers: int, machine: Machine) -> Passes:
    """Returns the passes of a micro-batch through the blocks of the stage that takes longest."""
    beside = layout.beside
    part = BlockPart(
        rows=layout.microbatch_size,
        tensor=layout.tensor,
        forward_passes=layout.forward_passes,
        fused_attention=layout.fused_attention,
        separate_kernels=layout.separate_kernels,
        positions=beside.parts("positions"),
        owners=beside.parts("stacked"),
        others=tuple((name, beside.axis(name), layout.stride(name)) for name in exchanging_in_blocks()),
        splits_sequence=layout.splits_sequence,
    )
    mixtures = shape.num_mixtures(layers, layout.pipe)
    alone, seconds, exchanged = 0.0, 0.0, dict.fromkeys(exchanging_in_blocks(), 0.0)
    for number, is_mixture in ((layers - mixtures, False), (mixtures, True)):
        if number:
            each = block_time(shape, part._replace(is_mixture=is_mixture), machine)
            alone, seconds = alone + number * each.alone, seconds + number * each.seconds
            exchanged = {name: exchanged[name] + number * more for name, more in each.beside.items()}
    return Passes(alone, seconds, exchanged)


def _sizes(shape: BlockSizes, layout: Layout, layers: int) -> dict[SumGroup, float]:
    """Returns how many parameters a GPU of the stage would hold unsharded, by the group that shares them."""
    mixtures = shape.num_mixtures(layers, layout.pipe)
    blocks = (layers - mixtures) * shape.block_params + mixtures * shape.mixture_params
    found = {layout.group: (blocks + shape.vocabulary * shape.width) / layout.tensor}
    if mixtures:
        stacked = mixtures * shape.expert_params / layout.beside.parts("stacked") / layout.tensor
        found[layout.expert_group] = found.get(layout.expert_group, 0.0) + stacked
    return found
