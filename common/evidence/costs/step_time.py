"""The seconds of one optimizer step of a transformer on a machine, in parts that add up."""

import dataclasses
from collections.abc import Mapping

from samestep.common.evidence.costs.machine import Machine
from samestep.common.evidence.costs.sizes import all_reduce_bytes
from samestep.common.workload.pipeline import SCHEDULES

_MATRIX_EFFICIENCY, _LINK_EFFICIENCY = 0.6, 0.7


@dataclasses.dataclass(frozen=True)
class Shape:
    """A transformer as its matrices see it.

    Attributes:
        layers: Blocks of attention and an mlp.
        width: Of the residual stream (the hidden size).
        heads: Of the queries.
        key_heads: Of keys and values.
        hidden: Units of the mlp.
        is_gated: Whether the mlp has a third matrix.
        context: Tokens of a sequence.
        vocabulary: Rows of the embedding.
    """

    layers: int
    width: int
    heads: int
    key_heads: int
    hidden: int
    is_gated: bool
    context: int
    vocabulary: int

    @property
    def block_params(self) -> int:
        """The elements of the matrices of a block."""
        keys = self.width // self.heads * self.key_heads
        return 2 * self.width * (self.width + keys) + (3 if self.is_gated else 2) * self.width * self.hidden


@dataclasses.dataclass(frozen=True, kw_only=True)
class Layout:
    """How a step is spread over GPUs. Ranks next to each other along `tensor` are neighbours in a node, then `data`.

    Attributes:
        batch_size: Sequences of a step, over all GPUs.
        microbatch_size: Sequences of a pass of one replica.
        data: Replicas, or with `sharding` shards.
        tensor: GPUs that share each matrix.
        pipe: GPUs that share the layers.
        schedule: Of the pipeline, a key of `SCHEDULES`.
        sharding: What is sharded along `data`: 0 nothing, 1 the optimizer's state, 2 also gradients, 3 also parameters (FSDP);
            the stages of ZeRO.
        recomputes: Whether a block's activations are computed again in the backward pass.
    """

    batch_size: int
    microbatch_size: int
    data: int = 1
    tensor: int = 1
    pipe: int = 1
    schedule: str = "1f1b"
    sharding: int = 0
    recomputes: bool = False

    @property
    def num_gpus(self) -> int:
        """All GPUs."""
        return self.data * self.tensor * self.pipe

    @property
    def microbatches(self) -> int:
        """The micro-batches of each replica in a step."""
        return self.batch_size // (self.data * self.microbatch_size)


@dataclasses.dataclass(frozen=True)
class StepTime:
    """The parts of a step, in seconds. What one part hides of another is counted in neither twice: they add up.

    Attributes:
        compute: Matrix products and what lies between them, on the slowest stage.
        tensor_exchange: All-reduces along `tensor`.
        pipeline_bubble: In which a stage waits for the first or the last micro-batches.
        pipeline_sends: Between stages.
        data_exchange: Of gradients and parameters along `data`, as far as nothing hides it.
        optimizer: The update.
    """

    compute: float
    tensor_exchange: float
    pipeline_bubble: float
    pipeline_sends: float
    data_exchange: float
    optimizer: float

    @property
    def total(self) -> float:
        """The whole step."""
        return sum(self.parts().values())

    def parts(self) -> Mapping[str, float]:
        """The seconds of each part, by name."""
        return dataclasses.asdict(self)


def step_time(shape: Shape, layout: Layout, machine: Machine) -> StepTime:
    """Predicts the parts of a step.

    Args:
        shape: Of the model.
        layout: How the step is spread.
        machine: What it runs on.
    """
    tokens, stage_layers = layout.microbatch_size * shape.context, shape.layers / layout.pipe
    flops = 2 * tokens * (shape.block_params + 2 * shape.context * shape.width)
    passes = 4 if layout.recomputes else 3
    head = 3 * 2 * tokens * shape.width * shape.vocabulary / layout.pipe
    rate = machine.peak_flops_per_second * _MATRIX_EFFICIENCY * layout.tensor
    compute = (stage_layers * passes * flops + head) / rate
    message = 2 * tokens * shape.width
    tensor = 2 * (passes - 1) * stage_layers * _all_reduce_seconds(machine, message, layout.tensor, 1, layout.tensor)
    sends = (
        2 * message / layout.tensor / _rate_between(machine, layout.tensor * layout.data) if layout.pipe > 1 else 0.0
    )
    count, parts = layout.microbatches, SCHEDULES[layout.schedule].stages_per_rank
    params = (shape.layers * shape.block_params + 2 * shape.vocabulary * shape.width) / (layout.tensor * layout.pipe)
    gradients = _all_reduce_seconds(machine, 2 * params, layout.data, layout.tensor, layout.num_gpus)
    return StepTime(
        compute=count * compute,
        tensor_exchange=count * tensor,
        pipeline_bubble=(layout.pipe - 1) / parts * (compute + tensor),
        pipeline_sends=(count + layout.pipe - 1) * sends,
        data_exchange=gradients * (1.5 if layout.sharding == 3 else 1.0),
        optimizer=28 * params / (layout.data if layout.sharding else 1) / machine.memory_bytes_per_second,
    )


def _rate_between(machine: Machine, distance: int) -> float:
    """The bytes a second of a GPU to one that is so many ranks away."""
    if distance < machine.gpus_per_node:
        return machine.node_bytes_per_second * _LINK_EFFICIENCY
    return machine.network_bytes_per_second / machine.gpus_per_node * _LINK_EFFICIENCY


def _all_reduce_seconds(machine: Machine, size: float, ranks: int, stride: int, span: int) -> float:
    """An all-reduce of ranks that are `stride` apart; all groups that lie within `span` ranks run theirs at once."""
    if ranks == 1:
        return 0.0
    rate = machine.node_bytes_per_second
    if ranks * stride > machine.gpus_per_node:  # each node's adapters carry the rings of the groups that it is part of
        rate = min(rate, machine.network_bytes_per_second / min(stride, machine.gpus_per_node, span))
    return all_reduce_bytes(size, ranks) / (rate * _LINK_EFFICIENCY)
