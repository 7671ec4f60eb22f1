"""The seconds that the blocks and the head of a transformer take on one GPU, for one micro-batch, forward and backward.

Each pass through a block is a queue of kernels. It takes as long as the slower of two: the host, which launches them, and the
GPU, which

    multiplies matrices in tiles, all processors at once: a last round with few tiles takes as long as a full one
    moves the numbers between them through its memory: each kernel reads and writes whole tensors
    waits, at each all-reduce along `tensor`, for the last GPU of the group, then for the bytes

Activations that are computed again belong to the backward pass. Numbers have two bytes. Scores of the attention pass through
the memory, as they do without a fused attention; Megatron's fused softmax takes only multiples of four heads x sequences.

References:
    Williams et al. 2009 (roofline); NVIDIA, "Matrix Multiplication Background", 2023 (tiles and waves); Shoeybi et al., arXiv
    1909.08053 (two all-reduces forward, two backward); Korthikanti et al., arXiv 2205.05198 (what a block computes and keeps).
"""

import dataclasses
import functools
import math

from samestep.common.seconds.exchange_seconds import all_reduce_seconds, last_of
from samestep.common.seconds.machine import Machine

ITEM = 2
"""The bytes of a number."""
_TILE, _SMALL_TILE = 128 * 256, 128 * 128
_SMALL_TILE_COST = 1.3
"""What a number of a matrix takes in small tiles, as a multiple of what it takes in large ones; chosen by left-out fits."""
_FORWARD_HOST = 0.45
"""The share of the host's time that the forward pass takes; chosen by left-out fits, which are as good from 0.4 to 0.46."""
_FUSED, _SEPARATE = (5, 8), (10, 16)
"""Norms and residuals, forward and backward: numbers read and written for each of the stream, on every rank along `tensor`.

Separate kernels, each of which reads and writes whole tensors: a norm 2 and 5, a sum 3, and a sum of two gradients 3. Left-out
fits chose those of Megatron's kernels, which do several of these at once."""
_SCORES = (4.5, 5.5)
"""Mask, softmax and dropout, forward and backward: the same for each score."""
_LOGIT_BYTES = 20
"""The loss: bytes read and written for each logit, in four-byte numbers."""
_LOSS_EXCHANGES = 3
"""What the parts of a vocabulary exchange of each token: its largest logit, that of its target, and the sum of exponentials."""


@dataclasses.dataclass(frozen=True)
class Shape:
    """A transformer as its matrices see it.

    Attributes:
        layers: Blocks of attention and an mlp.
        width: The width of the residual stream (the hidden size).
        heads: The heads of the queries.
        key_heads: The heads of keys and values.
        hidden: Units of the mlp.
        is_gated: Whether the mlp has a third matrix.
        context: Tokens of a sequence.
        vocabulary: Rows of the embedding, as they are in memory: padded or not.
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
    def key_width(self) -> int:
        """The width of keys, and of values."""
        return self.width // self.heads * self.key_heads

    @property
    def up_width(self) -> int:
        """The outputs of the first layer of the mlp."""
        return (2 if self.is_gated else 1) * self.hidden

    @property
    def block_params(self) -> int:
        """The elements of the matrices of a block."""
        return 2 * self.width * (self.width + self.key_width) + self.width * (self.up_width + self.hidden)


@dataclasses.dataclass(frozen=True)
class Passes:
    """What the passes of one micro-batch through a block or the head take, forward and backward.

    Attributes:
        alone: Seconds as if nothing were exchanged.
        seconds: Seconds with the all-reduces along `tensor`.
    """

    alone: float
    seconds: float


@functools.lru_cache(maxsize=4096)  # layouts of the same parts along `tensor` have the same blocks
def block_time(
    shape: Shape,
    rows: int,
    tensor: int,
    forward_passes: int,
    fused_attention: bool,
    machine: Machine,
    separate_kernels: bool = False,
) -> Passes:
    """Predicts a block.

    Args:
        shape: The shape of the model.
        rows: Sequences of the micro-batch.
        tensor: GPUs that share each matrix.
        forward_passes: How often the forward pass is computed: twice, if once more in the backward pass.
        fused_attention: Whether scores stay on the chip.
        machine: What it runs on.
        separate_kernels: Whether each norm and each residual sum is a kernel.
    """
    attention = _fused_attention if fused_attention else _attention
    kernels = (
        _matrices(shape, rows * shape.context, tensor, machine),
        _between(shape, rows * shape.context, tensor, _SEPARATE if separate_kernels else _FUSED, machine),
        attention(shape, rows * shape.heads / tensor, machine),
    )
    host = machine.block_host_seconds
    if not fused_attention and rows * shape.heads // tensor % 4:
        host += machine.unfused_softmax_seconds
    ahead = _Pass(_FORWARD_HOST * host, sum(each[0] for each in kernels), 2)
    back = _Pass((1 - _FORWARD_HOST) * host, sum(each[1] for each in kernels), 2)
    if forward_passes > 1:
        back = _Pass(ahead.host + back.host, ahead.gpu + back.gpu, 4)
    alone = ahead.alone + back.alone
    if tensor == 1:
        return Passes(alone, alone)
    wait = _exchange(rows * shape.context * shape.width, tensor, machine)
    return Passes(alone, ahead.seconds(wait, machine) + back.seconds(wait, machine))


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


def head_time(shape: Shape, rows: int, tensor: int, machine: Machine) -> Passes:
    """Predicts logits and loss of a micro-batch, forward and backward.

    Args:
        shape: The shape of the model.
        rows: Sequences of the micro-batch.
        tensor: GPUs that share the vocabulary.
        machine: What it runs on.
    """
    tokens, columns = rows * shape.context, shape.vocabulary / tensor
    flops = 3 * 2 * tokens * shape.width * columns
    alone = flops / (machine.peak_flops_per_second * machine.matrix_share)
    alone += _memory(machine, _LOGIT_BYTES * tokens * columns)
    if columns % 8:
        alone /= machine.unaligned_share
    if tensor == 1:
        return Passes(alone, alone)
    loss = _LOSS_EXCHANGES * _exchange(2 * tokens, tensor, machine)  # numbers of four bytes
    return Passes(alone, alone + _exchange(tokens * shape.width, tensor, machine) + loss)


def embedding_seconds(shape: Shape, rows: int, tensor: int, machine: Machine) -> float:
    """Predicts the all-reduce that adds up the parts of an embedding whose vocabulary is split, of one micro-batch.

    Args:
        shape: The shape of the model.
        rows: Sequences of the micro-batch.
        tensor: GPUs that share the vocabulary.
        machine: What it runs on.
    """
    return _exchange(rows * shape.context * shape.width, tensor, machine) if tensor > 1 else 0.0


def _exchange(numbers: float, tensor: int, machine: Machine) -> float:
    """Returns an all-reduce along `tensor`: how late the last GPU is, then the bytes."""
    return machine.wait_seconds * last_of(tensor) + all_reduce_seconds(machine, ITEM * numbers, tensor)


def _memory(machine: Machine, moved: float) -> float:
    return moved / (machine.memory_bytes_per_second * machine.memory_share)


def _matrices(shape: Shape, tokens: int, tensor: int, machine: Machine) -> tuple[float, float]:
    """The four products of a block with weights; each has one like it for its inputs' gradient, one for its weights'."""
    width, ahead, back = shape.width, 0.0, 0.0
    for inputs, outputs in (
        (width, (width + 2 * shape.key_width) / tensor),
        (width / tensor, width),
        (width, shape.up_width / tensor),
        (shape.hidden / tensor, width),
    ):
        ahead += _rounds(tokens, outputs, machine) * inputs
        back += _rounds(tokens, inputs, machine) * outputs + _rounds(inputs, outputs, machine) * tokens
    seconds = 2 / (machine.peak_flops_per_second * machine.matrix_share)
    return ahead * seconds, back * seconds


def _rounds(rows: float, columns: float, machine: Machine) -> float:
    """The numbers of a matrix that would take as long if every processor were busy, in the better of two sizes of tiles."""
    large, small = machine.processors * _TILE, machine.processors * _SMALL_TILE
    numbers = rows * columns
    return min(math.ceil(numbers / large) * large, math.ceil(numbers / small) * small * _SMALL_TILE_COST)


def _between(
    shape: Shape, tokens: int, tensor: int, replicated: tuple[int, int], machine: Machine
) -> tuple[float, float]:
    """Returns what lies between matrices: norms and residuals on every rank, the activation of the mlp in parts."""
    stream = _memory(machine, tokens * shape.width * ITEM)
    ahead, back = replicated
    ahead_split = (shape.up_width + shape.hidden) / shape.width
    back_split = (2 * shape.up_width + shape.hidden) / shape.width + 3
    return (ahead + ahead_split / tensor) * stream, (back + back_split / tensor) * stream


def _attention(shape: Shape, matrices: float, machine: Machine) -> tuple[float, float]:
    """Returns the attention with all scores in memory, of so many heads x sequences: two products forward, four backward.

    A product either computes or writes its scores, whichever is slower.
    """
    scores = matrices * shape.context**2
    once = scores * ITEM / (machine.memory_bytes_per_second * machine.attention_share)
    flops = 2 * scores * (shape.width // shape.heads)
    product = max(flops / (machine.peak_flops_per_second * machine.matrix_share), once)
    return 2 * product + _SCORES[0] * once, 4 * product + _SCORES[1] * once


def _fused_attention(shape: Shape, matrices: float, machine: Machine) -> tuple[float, float]:
    """Returns the attention without scores in memory: only what the mask leaves, two products forward and five backward."""
    flops = matrices * shape.context**2 * (shape.width // shape.heads)
    product = flops / (machine.peak_flops_per_second * machine.fused_attention_share)
    return 2 * product, 5 * product
