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
import math
from collections.abc import Mapping

from samestep.common.seconds.block_time import ITEM, Shape, block_time, embedding_seconds, head_time
from samestep.common.seconds.exchange_seconds import all_reduce_seconds, send_seconds
from samestep.common.seconds.machine import Machine
from samestep.common.workload.pipeline_schedule import SCHEDULES

_BUBBLES = {"interleaved_zero_bubble": 1 / 3, "zbv_zero_bubble": 1 / 3, "dualpipev": 1 / 3}
"""What a schedule that puts off the gradients of weights leaves of the bubble of another one."""
_EXCHANGES = (2, 3, 2, 3)
"""By what is sharded: how often parameters are gathered or gradients reduced; an all-reduce does both. `zero.py` has the sums."""
_UPDATE_BYTES = 36
"""Read and written for each parameter: 28 by Adam in mixed precision, 8 to check, scale and clear gradients."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Layout:
    """How a step is spread over GPUs: neighbours along `tensor` are neighbours in a node, then `shard`, `data`, `pipe`.

    Attributes:
        batch_size: Sequences of a step, over all GPUs.
        microbatch_size: Sequences of a pass of one replica.
        data: Replicas, or with `sharding` shards.
        shard: Shards of each replica, all of whose state is sharded (`sharding` 3).
        tensor: GPUs that share each matrix.
        pipe: GPUs that share the layers.
        schedule: The schedule of the pipeline, a key of `SCHEDULES`.
        sharding: What is sharded along `data`: 0 nothing, 1 the optimizer's state, 2 also gradients, 3 also parameters
            (FSDP); the stages of ZeRO.
        forward_passes: How often a block's forward pass is computed: twice, if once more in the backward pass.
        overlaps: Whether gradients and parameters are exchanged while other layers compute, as DDP and FSDP do.
        fused_attention: Whether the scores of the attention stay on the chip.
        separate_kernels: Whether each norm and each residual sum is a kernel, as in PyTorch without a compiler.
    """

    batch_size: int
    microbatch_size: int
    data: int = 1
    shard: int = 1
    tensor: int = 1
    pipe: int = 1
    schedule: str = "1f1b"
    sharding: int = 0
    forward_passes: int = 1
    overlaps: bool = False
    fused_attention: bool = False
    separate_kernels: bool = False

    @property
    def num_gpus(self) -> int:
        """All GPUs."""
        return self.data * self.shard * self.tensor * self.pipe

    @property
    def microbatches(self) -> int:
        """The micro-batches of each replica in a step."""
        return self.batch_size // (self.data * self.shard * self.microbatch_size)


@dataclasses.dataclass(frozen=True)
class StepTime:
    """The parts of a step, in seconds. What one part hides of another is counted in neither twice: they add up.

    Attributes:
        compute: Matrix products and what lies between them, on the slowest stage.
        tensor_exchange: All-reduces along `tensor`.
        pipeline_bubble: In which a stage waits for the first or the last micro-batches.
        pipeline_sends: What stages send each other.
        data_exchange: Of gradients and parameters along `data` and `shard`, as far as nothing hides it.
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
        """Returns the seconds of each part, by name."""
        return dict(vars(self))


def step_time(shape: Shape, layout: Layout, machine: Machine) -> StepTime:
    """Predicts the parts of a step.

    Args:
        shape: The shape of the model.
        layout: How the step is spread.
        machine: What it runs on.
    """
    rows, count, pipe = layout.microbatch_size, layout.microbatches, layout.pipe
    block = block_time(
        shape,
        rows,
        layout.tensor,
        layout.forward_passes,
        layout.fused_attention,
        machine,
        layout.separate_kernels,
    )
    layers = math.ceil(shape.layers / pipe)
    head = head_time(shape, rows, layout.tensor, machine)
    embedding = embedding_seconds(shape, rows, layout.tensor, machine) * (count if pipe == 1 else 1)
    stages = SCHEDULES[layout.schedule].stages_per_rank
    message = (
        rows * shape.context * shape.width * ITEM / layout.tensor
    )  # each rank sends its part, as in Megatron and DeepSpeed
    distance = layout.tensor * layout.shard * layout.data
    sends = (count + pipe - 2) * stages * send_seconds(machine, message, distance) if pipe > 1 else 0.0
    params = (layers * shape.block_params + shape.vocabulary * shape.width) / layout.tensor
    held = params / layout.shard / (layout.data if layout.sharding else 1)
    return StepTime(
        compute=count * (layers * block.alone + head.alone),
        tensor_exchange=count * (layers * (block.seconds - block.alone) + head.seconds - head.alone) + embedding,
        pipeline_bubble=(pipe - 1) / stages * _BUBBLES.get(layout.schedule, 1.0) * layers * block.seconds,
        pipeline_sends=sends,
        data_exchange=_exchange(layout, params, layers, layers * block.seconds + head.seconds, machine),
        optimizer=_UPDATE_BYTES * held / (machine.memory_bytes_per_second * machine.memory_share),
    )


def _exchange(layout: Layout, params: float, layers: int, passes: float, machine: Machine) -> float:
    """Returns the seconds of exchanges along `data` and `shard` that nothing hides.

    Args:
        layout: How the step is spread.
        params: What a GPU would hold unsharded.
        layers: The layers of a stage, each of which can be exchanged by itself.
        passes: The seconds of a micro-batch.
        machine: What it runs on.
    """
    whole, count = layout.sharding == 3, layout.microbatches
    replicas = all_reduce_seconds(machine, ITEM * params / layout.shard, layout.data, layout.tensor * layout.shard)
    shards = all_reduce_seconds(machine, ITEM * params, layout.shard, layout.tensor)
    gathers = count if layout.pipe == 1 else 1
    # An all-reduce is a reduction and a gathering; parameters are gathered for the forward and the backward pass of each
    # micro-batch, in a pipeline once a step.
    taken = replicas / 2 * (1 + 2 * gathers if whole else _EXCHANGES[layout.sharding]) + shards / 2 * (1 + 2 * gathers)
    if not layout.overlaps:
        return taken
    hidden = count * passes if whole or layout.shard > 1 else 2 / 3 * passes
    return max(taken / (layers + 1) / gathers, taken - hidden)
