"""The seconds that the blocks and the head of a transformer take on one GPU, for one micro-batch, forward and backward.

Each pass through a block is a queue of kernels. It takes as long as the slower of two: the host, which launches them, and the
GPU, which

    multiplies matrices in tiles, all processors at once: a last round with few tiles takes as long as a full one
    moves the numbers between them through its memory: each kernel reads and writes whole tensors
    waits, at each all-reduce along `tensor` and each all-to-all, for the last GPU of the group, and then for the bytes

Recomputing activations counts in the backward pass. Numbers have two bytes. Scores of the attention pass through
the memory, as they do without a fused attention; Megatron's fused softmax takes only multiples of four heads x sequences.

References:
    Williams et al. 2009 (roofline); NVIDIA, "Matrix Multiplication Background", 2023 (tiles and waves); Shoeybi et al., arXiv
    1909.08053 (two all-reduces forward, two backward); Korthikanti et al., arXiv 2205.05198 (what a block computes and keeps).
"""

import dataclasses
import functools
from collections.abc import Mapping
from typing import NamedTuple

from samestep.common.axes.axis import BlockPass
from samestep.common.axes.used import hooks_of
from samestep.common.seconds.exchange_seconds import all_reduce_seconds, all_to_all_seconds, last_of
from samestep.common.seconds.machine import Machine
from samestep.common.seconds.products import ITEM, expert_seconds, moved_seconds, product_seconds
from samestep.common.workload.models.block_sizes import BlockSizes

_FORWARD_HOST = 0.45
"""The share of the host's time that the forward pass takes, chosen by fits with held-out rows; 0.4 to 0.46 fit equally well."""
_FUSED, _SEPARATE = (5, 8), (10, 16)
"""Norms and residuals, forward and backward: how many numbers are read and written for each number of the residual stream, on
every rank along `tensor`. With separate kernels, each of which reads and writes whole tensors, a norm takes 2 and 5, a
sum 3, and a sum of two gradients 3. Megatron's kernels do several of these at once; their numbers were chosen by fits
with held-out rows.
"""
_SCORES = (4.5, 5.5)
"""Mask, softmax and dropout, forward and backward: how many numbers are read and written for each score."""
_LOGIT_BYTES = 20
"""The loss: how many bytes are read and written for each logit, in four-byte numbers."""
_LOSS_EXCHANGES = 3
"""What the parts of a vocabulary exchange for each token: the largest logit, that of the target, and the sum of
exponentials."""


class BlockPart(NamedTuple):
    """The part of a block and of a micro-batch that a GPU has, and how it computes that part.

    Attributes:
        rows: Sequences of the micro-batch.
        tensor: The number of GPUs that share each matrix.
        forward_passes: How often the forward pass is computed: 2 if it is recomputed in the backward pass, 1.5 if half
            of it is.
        fused_attention: Whether scores stay on the chip.
        separate_kernels: Whether each norm and each residual sum is a separate kernel.
        positions: The number of GPUs that share the positions of a sequence.
        owners: The number of GPUs that share the experts.
        others: The axes along which it runs all-to-alls, each with its size and the distance between two neighbours.
        splits_sequence: Whether norms and residuals are split along `tensor` as well.
        is_mixture: Whether the block has experts in place of an mlp.
    """

    rows: int
    tensor: int = 1
    forward_passes: float = 1
    fused_attention: bool = False
    separate_kernels: bool = False
    positions: int = 1
    owners: int = 1
    others: tuple[tuple[str, int, int], ...] = ()
    splits_sequence: bool = False
    is_mixture: bool = False


@dataclasses.dataclass(frozen=True)
class Passes:
    """The seconds of the passes of one micro-batch through a block or the head, forward and backward.

    Attributes:
        alone: Seconds without any exchange.
        seconds: Seconds with the all-reduces along `tensor`.
        beside: Further axis -> the seconds of the exchanges along it, which come on top.
    """

    alone: float
    seconds: float
    beside: Mapping[str, float] = dataclasses.field(default_factory=dict)

    @property
    def whole(self) -> float:
        """The seconds with all exchanges."""
        return sum(self.beside.values(), self.seconds)


@functools.lru_cache(maxsize=2**15)  # layouts of the same parts have the same blocks
def block_time(shape: BlockSizes, part: BlockPart, machine: Machine) -> Passes:
    """Predicts the seconds of a block.

    Args:
        shape: The shape of the model.
        part: The part of it that a GPU has.
        machine: The machine that it runs on.
    """
    tokens, tensor = part.rows * shape.context / part.positions, part.tensor
    attention = _fused_attention if part.fused_attention else _attention
    hidden = shape.shared_hidden if part.is_mixture else shape.hidden
    mlp = [(shape.width, shape.up_of(hidden) / tensor), (hidden / tensor, shape.width)] if hidden else []
    kernels = [
        product_seconds(tokens, [*shape.attention_products(tensor), *mlp], machine),
        _between(shape, tokens, part, machine),
        attention(shape, part.rows * shape.heads / tensor / part.positions, machine),
    ]
    if part.is_mixture:
        kernels.append(product_seconds(tokens, [(shape.width, shape.routed_experts)], machine))
        kernels.append(expert_seconds(shape, tokens, part.owners, tensor, machine))
    host = machine.block_host_seconds
    if not part.fused_attention and part.rows * shape.heads // tensor % 4:
        host += machine.unfused_softmax_seconds
    ahead = _Pass(_FORWARD_HOST * host, sum(each[0] for each in kernels), 2)
    back = _Pass((1 - _FORWARD_HOST) * host, sum(each[1] for each in kernels), 2)
    if again := part.forward_passes - 1:
        back = _Pass(again * ahead.host + back.host, again * ahead.gpu + back.gpu, 2 + 2 * int(again))
    alone = seconds = ahead.alone + back.alone
    if tensor > 1:
        sent = tokens * shape.width
        behind_mlp = sent * shape.top_k if part.is_mixture else sent  # what each expert returns is in parts
        wait = (_exchange(sent, tensor, machine) + _exchange(behind_mlp, tensor, machine)) / 2
        seconds = ahead.seconds(wait, machine) + back.seconds(wait, machine)
    exchanged = _all_to_all(shape, tokens, part, machine)
    return Passes(alone, seconds, {name: (1 + part.forward_passes) * each for name, each in exchanged.items()})


def _all_to_all(shape: BlockSizes, tokens: float, part: BlockPart, machine: Machine) -> dict[str, float]:
    """Returns the seconds of a pass's exchanges along each further axis; forward and backward passes exchange the same bytes."""
    queries, taken = shape.values + shape.heads * shape.rotary_width, shape.top_k if part.is_mixture else 0
    attention, found = (queries, shape.key_width, shape.of_head, shape.values), dict[str, float]()
    for name, ranks, stride in part.others:
        block = BlockPass(tokens, shape.width, *attention, taken, part.tensor, part.splits_sequence, ranks)
        exchange = hooks_of(name).all_to_all if ranks > 1 else None
        each = exchange(block) if exchange is not None else ()
        wait = machine.wait_seconds * last_of(ranks)
        found[name] = sum((wait + all_to_all_seconds(machine, ITEM * numbers, ranks, stride) for numbers in each), 0.0)
    return found


@dataclasses.dataclass(frozen=True)
class _Pass:
    """A pass through a block: the seconds of the host and of the GPU, and the number of its all-reduces along `tensor`."""

    host: float
    gpu: float
    exchanges: int

    @property
    def alone(self) -> float:
        return max(self.host, self.gpu)

    def seconds(self, wait: float, machine: Machine) -> float:
        return max(self.host + self.exchanges * machine.all_reduce_host_seconds, self.gpu + self.exchanges * wait)


def head_time(shape: BlockSizes, rows: float, tensor: int, machine: Machine) -> Passes:
    """Predicts the seconds of the logits and the loss of a micro-batch, forward and backward.

    Args:
        shape: The shape of the model.
        rows: Sequences of the micro-batch, or the part of them that a GPU has.
        tensor: The number of GPUs that share the vocabulary.
        machine: The machine that it runs on.
    """
    tokens, columns = rows * shape.context, shape.vocabulary / tensor
    flops = 3 * 2 * tokens * shape.width * columns
    alone = flops / (machine.peak_flops_per_second * machine.matrix_share)
    alone += moved_seconds(machine, _LOGIT_BYTES * tokens * columns)
    if columns % 8:
        alone /= machine.unaligned_share
    if tensor == 1:
        return Passes(alone, alone)
    loss = _LOSS_EXCHANGES * _exchange(2 * tokens, tensor, machine)  # numbers of four bytes
    return Passes(alone, alone + _exchange(tokens * shape.width, tensor, machine) + loss)


def embedding_seconds(shape: BlockSizes, rows: float, tensor: int, machine: Machine) -> float:
    """Predicts the seconds of the all-reduce that sums the parts of an embedding with a split vocabulary, for one micro-batch.

    Args:
        shape: The shape of the model.
        rows: Sequences of the micro-batch, or the part of them that a GPU has.
        tensor: The number of GPUs that share the vocabulary.
        machine: The machine that it runs on.
    """
    return _exchange(rows * shape.context * shape.width, tensor, machine) if tensor > 1 else 0.0


def _exchange(numbers: float, tensor: int, machine: Machine) -> float:
    """Returns the seconds of an all-reduce along `tensor`: the delay of the last GPU, then the bytes."""
    return machine.wait_seconds * last_of(tensor) + all_reduce_seconds(machine, ITEM * numbers, tensor)


def _between(shape: BlockSizes, tokens: float, part: BlockPart, machine: Machine) -> tuple[float, float]:
    """Returns the seconds of what lies between matrix products: norms and residuals on every rank, and activations in parts.

    If the sequence is split, norms and residuals are in parts as well.

    A mixture also copies tokens, which are sorted by experts and added up again.
    """
    stream = moved_seconds(machine, tokens * shape.width * ITEM)
    replicated = _SEPARATE if part.separate_kernels else _FUSED
    ahead, back = (each / (part.tensor if part.splits_sequence else 1) for each in replicated)
    hidden, copies = (shape.hidden, 0) if not part.is_mixture else _of_mixture(shape)
    ahead_split = (shape.up_of(hidden) + hidden) / shape.width + copies
    back_split = (2 * shape.up_of(hidden) + hidden) / shape.width + 3 + copies
    return (ahead + ahead_split / part.tensor) * stream, (back + back_split / part.tensor) * stream


def _of_mixture(shape: BlockSizes) -> tuple[int, int]:
    """Returns the hidden units that a token meets in a mixture, and how many numbers copying moves, as multiples of its width."""
    return shape.shared_hidden + shape.top_k * shape.expert_hidden, 2 * (1 + shape.top_k)


def _attention(shape: BlockSizes, matrices: float, machine: Machine) -> tuple[float, float]:
    """Returns the seconds of attention with all scores in memory: two products forward, four backward.

    `matrices` is the number of heads x sequences.

    A product takes as long as computing or writing its scores, whichever is slower.
    """
    scores = matrices * shape.context**2
    once = scores * ITEM / (machine.memory_bytes_per_second * machine.attention_share)
    flops = 2 * scores * (shape.score_width)
    product = max(flops / (machine.peak_flops_per_second * machine.matrix_share), once)
    return 2 * product + _SCORES[0] * once, 4 * product + _SCORES[1] * once


def _fused_attention(shape: BlockSizes, matrices: float, machine: Machine) -> tuple[float, float]:
    """Returns the seconds of attention without scores in memory: what the mask leaves, two products forward, five backward."""
    flops = matrices * shape.context**2 * (shape.score_width)
    product = flops / (machine.peak_flops_per_second * machine.fused_attention_share)
    return 2 * product, 5 * product
