"""The bytes of the fullest GPU under Megatron-LM and torchtitan's FSDP, which keep state differently from our strategies.

Parameters come from the same table as the ledgers' (`DecoderSpec`), and activations are the textbook's.

Megatron-LM holds, for each parameter, 2 bytes, 4 bytes of its gradient, and 12 bytes of optimizer state, which its distributed
optimizer shards. In addition there are workspaces, and what each stage of a pipeline received last. torchtitan holds 16 bytes
for each parameter, sharded.

References:
    Korthikanti et al., arXiv 2205.05198, equations 1 and 2; Rajbhandari et al., arXiv 1910.02054, section 3.1;
    NVIDIA/Megatron-LM, `megatron/core`: `transformer/transformer_block.py` (`set_input_tensor`),
    `pipeline_parallel/schedules.py` (`backward_step`), `transformer/dot_product_attention.py` (`matmul_input_buffer`).
"""

import dataclasses
import math

from samestep.common.costs.saved_activations.peak import in_flight
from samestep.common.seconds.layout import Layout
from samestep.common.seconds.products import ITEM
from samestep.common.workload.models.block_sizes import BlockSizes
from samestep.common.workload.models.decoder import DecoderSpec
from samestep.common.workload.models.spec import parameters_of
from samestep.common.workload.pipeline_schedule import SCHEDULES
from samestep.common.workload.split import even_split_table

_CUBLAS_BYTES = 2 * 32 * 2**20
"""The bytes of cuBLAS' workspaces: one for the thread of the forward pass, and one for that of the backward pass."""
_TRANSFORMER_ENGINE_BYTES = 32 * 2**20
"""The bytes of Transformer Engine's workspace on GPUs from Hopper on; on older ones it has 4 MiB."""
_LOGIT_BYTES = 6
"""The bytes of a logit: itself, and its probability in four bytes, which becomes its gradient."""
_SHARDED_LOGIT_BYTES = 12
"""The bytes of a logit without Megatron's fusion: itself, its copy in four bytes, and the gradients of both."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class MegatronLayout:
    """How Megatron-LM spreads a model, as far as memory depends on it.

    Attributes:
        tensor: The number of GPUs that share each matrix.
        pipe: The number of GPUs that share the layers.
        chunks: The number of stages on each GPU of the pipeline.
        data: The number of replicas.
        microbatch_size: The number of sequences of a pass.
        is_tied: Whether the head is the table of tokens.
        shards_optimizer: Whether the optimizer's state is sharded along `data`.
        fused_attention: Whether the scores of the attention stay on the chip.
        is_local: Whether layers are Megatron's own instead of Transformer Engine's.
    """

    tensor: int
    pipe: int
    chunks: int
    data: int
    microbatch_size: int
    is_tied: bool
    shards_optimizer: bool
    fused_attention: bool
    is_local: bool


def megatron_bytes(shape: BlockSizes, held: MegatronLayout) -> tuple[float, float]:
    """Predicts the bytes that the last rank of Megatron-LM has allocated between two steps, and at most.

    Args:
        shape: The shape of the model.
        held: How it is spread.
    """
    state = 6 + 12 / (held.data if held.shards_optimizer else 1)
    always = state * _last_rank_params(shape, held) + _workspace_bytes(shape, held)
    passes = held.pipe if held.pipe == 1 else (held.chunks - 1) * held.pipe + 1
    blocks = shape.layers // (held.pipe * held.chunks) * passes
    tokens = held.microbatch_size * shape.context
    kept = blocks * _block_bytes(shape, held.microbatch_size, held.tensor, held.fused_attention)
    logits = _LOGIT_BYTES * tokens * shape.vocabulary / held.tensor
    return always + _received_bytes(shape, held), always + kept + logits


def _workspace_bytes(shape: BlockSizes, held: MegatronLayout) -> int:
    """Returns the bytes that kernels keep permanently; Megatron's own attention keeps room for the scores of one layer."""
    scores = held.microbatch_size * shape.heads // held.tensor * shape.context**2
    return _CUBLAS_BYTES + (ITEM * scores if held.is_local else _TRANSFORMER_ENGINE_BYTES)


def _received_bytes(shape: BlockSizes, held: MegatronLayout) -> int:
    """Returns the bytes that the stages of a pipeline's last rank hold after a step: their last input and its gradient.

    The model refers to its input until it gets the next one, and the input to its gradient, which was sent back. At the
    peak, inputs are those of micro-batches in flight, which are counted there, and have no gradient yet.
    """
    number = held.microbatch_size * shape.context * shape.width
    return 2 * ITEM * number * held.chunks if held.pipe > 1 else 0


def _last_rank_params(shape: BlockSizes, held: MegatronLayout) -> int:
    """Returns the elements on the last rank of the pipeline: its blocks, the last norm and the head; of one stage, all."""
    model = _model(shape)
    split = even_split_table(model, held.tensor)
    segments = model.segments()
    own = segments[1 + (held.pipe - 1) * shape.layers // held.pipe :] if held.pipe > 1 else segments
    elements = sum(
        param.size // (held.tensor if name in split else 1) for name, param in parameters_of(model, *own).items()
    )
    has_own_head = held.pipe > 1 or not held.is_tied
    return elements + (shape.vocabulary * shape.width // held.tensor if has_own_head else 0)


def _model(shape: BlockSizes) -> DecoderSpec:
    sizes = (shape.layers, shape.heads, shape.key_heads, shape.width, shape.hidden, shape.context, shape.vocabulary)
    return DecoderSpec("llama" if shape.is_gated else "gpt", *sizes)


def _block_bytes(shape: BlockSizes, rows: int, tensor: int, fused_attention: bool) -> float:
    """Returns a block's bytes: the textbook's 34 for each number of the stream, fewer with fewer keys; and 5 for each score."""
    keys = shape.key_width / shape.width
    inside = 2 + 4 * keys + 2 + 4 * shape.hidden / shape.width
    stream = rows * shape.context * shape.width * (10 + inside / tensor)
    scores = 0 if fused_attention else 5 * rows * shape.heads * shape.context**2 / tensor
    return stream + scores


def sharded_bytes(shape: BlockSizes, layout: Layout) -> float:
    """Predicts what PyTorch reserves on the fullest GPU under torchtitan's FSDP with tensor and pipeline parallelism.

    With full recomputation a block keeps its input, and one block of the stage holds everything; with selective recomputation a
    block keeps every other product and the attention's output.

    Args:
        shape: The shape of the model.
        layout: How it is spread; one forward pass means selective recomputation.
    """
    params = shape.layers * shape.block_params + 2 * shape.vocabulary * shape.width
    layers = math.ceil(shape.layers / layout.pipe)
    tokens = layout.microbatch_size * shape.context / layout.beside.parts("positions")
    number = tokens * shape.width / layout.tensor * ITEM
    keys, hidden = shape.key_width / shape.width, shape.hidden / shape.width
    selective = number * (3 + keys + hidden)
    whole = number * (5 + 2 * keys + 5 * hidden)
    stages = SCHEDULES[layout.schedule].stages_per_rank
    inputs = layers / stages * _passes_in_flight(layout) * number
    kept = inputs + whole if layout.forward_passes == 2 else layers * selective + whole
    state, block = 16 * params / layout.num_gpus, shape.block_params / layout.tensor
    if layout.pipe > 1:  # FSDP keeps a stage whole for all its micro-batches, and adds up whole gradients in four bytes
        return state + kept + (ITEM + 4) * layers * block
    return state + kept + _SHARDED_LOGIT_BYTES * tokens * shape.vocabulary / layout.tensor + 4 * ITEM * block


def _passes_in_flight(layout: Layout) -> int:
    """Returns the most forward passes in flight on the first rank, each a micro-batch through one of its stages."""
    if layout.pipe == 1:
        return 1
    candidates = in_flight(layout.schedule, layout.pipe, 0, layout.microbatches)
    return max(sum(present + put_off for present, put_off in each.counts) for each in candidates)
