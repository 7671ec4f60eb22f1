"""The causal transformer, in the two styles of its spec.

Shape suffixes: B batch, T tokens, D width, H heads, G heads of keys, K width of a head, V vocabulary.

References:
    Korthikanti et al., arXiv 2205.05198 (sequence parallel).
"""

import torch
from torch import nn
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    PrepareModuleOutput,
    RowwiseParallel,
    SequenceParallel,
)
from torch.nn import functional

from samestep.common.batch import Chunk
from samestep.common.workload.models.spec import ModelSpec
from samestep.common.workload.models.transformer import NORM_EPSILON, ROTARY_BASE, TransformerSpec
from samestep.torch_impl.features.applied import behind
from samestep.torch_impl.models.experts import Experts
from samestep.torch_impl.models.layers import ACTIVATIONS
from samestep.torch_impl.models.segmented import SegmentFunction, run_segments
from samestep.torch_impl.step_context import StepContext


def norm(spec: TransformerSpec) -> nn.Module:
    """Returns a norm over the width."""
    return (nn.RMSNorm if spec.is_llama else nn.LayerNorm)(spec.width, eps=NORM_EPSILON)


class Embedding(nn.Module):
    """The token table, plus the position table if there is one.

    Attributes:
        part: Which of the positions it is given, if a batch is also split by positions.
    """

    def __init__(self, spec: TransformerSpec, context: StepContext) -> None:
        super().__init__()
        self.tokens = nn.Embedding(spec.vocabulary, spec.width)
        self.positions = None if spec.is_llama else nn.Embedding(spec.context, spec.width)
        self.behind = behind(spec, 0, context)
        self.part, self.whole = Chunk(), spec.context

    def forward(self, x_BT: torch.Tensor) -> torch.Tensor:
        """Returns the embeddings of ids, [B, T] -> [B, T, D]."""
        x_BTD = self.tokens(x_BT)
        return self.behind(
            x_BTD if self.positions is None else x_BTD + self.positions(places(x_BTD, self.part, self.whole))
        )


def places(x_BTD: torch.Tensor, part: Chunk, whole: int) -> torch.Tensor:
    """Returns the positions [T] of the tokens that a rank is given: those of whole examples, as in evaluation, or a part.

    Args:
        x_BTD: The activations that the rank has.
        part: Which of the positions the rank is given in training.
        whole: The number of positions of an example.
    """
    own = part if x_BTD.shape[1] < whole else Chunk()
    return torch.cat([torch.arange(piece.start, piece.stop, device=x_BTD.device) for piece in own.pieces(whole)])


def turn(x_BHTK: torch.Tensor, cos_TK: torch.Tensor, sin_TK: torch.Tensor) -> torch.Tensor:
    """Rotates pairs by an angle (rotary positions); a pair is an element and the element half a head after it.

    Args:
        x_BHTK: Queries or keys.
        cos_TK: The cosine of the angle of each pair.
        sin_TK: The sine of the angle of each pair.

    References:
        Su et al., arXiv 2104.09864.
    """
    first, second = x_BHTK.chunk(2, dim=-1)
    return x_BHTK * cos_TK + torch.cat((-second, first), -1) * sin_TK


def causal_attention(q_BHTK: torch.Tensor, k_BHTK: torch.Tensor, v_BHTK: torch.Tensor) -> torch.Tensor:
    """Returns values mixed by causal attention, [B, H, T, K].

    Args:
        q_BHTK: Queries.
        k_BHTK: Keys.
        v_BHTK: Values.
    """
    return functional.scaled_dot_product_attention(q_BHTK, k_BHTK, v_BHTK, is_causal=True)


class Attention(nn.Module):
    """Causal self-attention; q, k and v are separate, k has no bias, and keys and values may have fewer heads.

    Attributes:
        part: Which of the positions it is given, if a batch is also split by positions.
        attend: Computes attention, given queries, keys and values; replaced if a rank has only some of the positions.
    """

    def __init__(self, spec: TransformerSpec, block: int, context: StepContext) -> None:
        super().__init__()
        self.behind = behind(spec, 2 * block + 1, context, f"blocks/{block}/attention/output")
        self.head_width, self.queries_a_key = spec.width // spec.heads, spec.heads // spec.num_key_heads
        self.is_rotary, has_biases, of_keys = spec.is_llama, not spec.is_llama, self.head_width * spec.num_key_heads
        self.query = nn.Linear(spec.width, spec.width, bias=has_biases)
        self.key = nn.Linear(spec.width, of_keys, bias=False)
        self.value = nn.Linear(spec.width, of_keys, bias=has_biases)
        self.output = nn.Linear(spec.width, spec.width, bias=has_biases)
        self.part, self.whole = Chunk(), spec.context
        self.attend = causal_attention

    def forward(self, x_BTD: torch.Tensor) -> torch.Tensor:
        """Computes [B, T, D] -> [B, T, D]; the number of heads follows from the outputs of the projections."""
        projected = (self.query(x_BTD), self.key(x_BTD), self.value(x_BTD))
        q_BHTK, k_BGTK, v_BGTK = (a.unflatten(-1, (-1, self.head_width)).transpose(1, 2) for a in projected)
        if self.is_rotary:
            angles = self._angles(q_BHTK)
            q_BHTK, k_BGTK = turn(q_BHTK, *angles), turn(k_BGTK, *angles)
        if self.queries_a_key > 1:
            k_BGTK, v_BGTK = (a.repeat_interleave(self.queries_a_key, 1) for a in (k_BGTK, v_BGTK))
        mixed_BHTK = self.attend(q_BHTK, k_BGTK, v_BGTK)
        return self.behind(self.output(mixed_BHTK.transpose(1, 2).flatten(2)))

    def _angles(self, x_BHTK: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns cosines and sines [T, K], computed in float64 and rounded to the dtype of the queries."""
        half = self.head_width // 2
        exponents = torch.arange(half, device=x_BHTK.device, dtype=torch.float64) / -half
        places_T = places(x_BHTK[:, 0], self.part, self.whole)
        angles_TK = torch.outer(places_T.double(), ROTARY_BASE**exponents).repeat(1, 2)
        return angles_TK.cos().to(x_BHTK.dtype), angles_TK.sin().to(x_BHTK.dtype)


class FeedForward(nn.Module):
    """A linear layer up to the hidden size, the activation, and a linear layer down again."""

    def __init__(self, spec: TransformerSpec, block: int, context: StepContext) -> None:
        super().__init__()
        self.behind = behind(spec, 2 * block + 2, context, f"blocks/{block}/mlp/down")
        self.activate = ACTIVATIONS[spec.activation]
        self.up = nn.Linear(spec.width, spec.hidden)
        self.down = nn.Linear(spec.hidden, spec.width)

    def forward(self, x_BTD: torch.Tensor) -> torch.Tensor:
        """Computes [B, T, D] -> [B, T, D]."""
        return self.behind(self.down(self.activate(self.up(x_BTD))))


class GatedMlp(nn.Module):
    """Down(silu(gate(x)) * up(x)), without biases (SwiGLU)."""

    def __init__(self, spec: TransformerSpec, block: int, context: StepContext) -> None:
        super().__init__()
        self.behind = behind(spec, 2 * block + 2, context, f"blocks/{block}/mlp/down")
        self.up = nn.Linear(spec.width, spec.hidden, bias=False)
        self.gate = nn.Linear(spec.width, spec.hidden, bias=False)
        self.down = nn.Linear(spec.hidden, spec.width, bias=False)

    def forward(self, x_BTD: torch.Tensor) -> torch.Tensor:
        """Computes [B, T, D] -> [B, T, D]."""
        return self.behind(self.down(functional.silu(self.gate(x_BTD)) * self.up(x_BTD)))


class Block(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x))."""

    def __init__(self, spec: TransformerSpec, block: int, context: StepContext) -> None:
        super().__init__()
        self.attention_norm = norm(spec)
        self.attention = Attention(spec, block, context)
        self.mlp_norm = norm(spec)
        mlp = Experts if spec.experts else GatedMlp if spec.is_llama else FeedForward
        self.mlp = mlp(spec, block, context)

    def forward(self, x_BTD: torch.Tensor) -> torch.Tensor:
        """Computes [B, T, D] -> [B, T, D]."""
        x_BTD = x_BTD + self.attention(self.attention_norm(x_BTD))
        return x_BTD + self.mlp(self.mlp_norm(x_BTD))


class TiedLogits(nn.Linear):
    """Logits by the embedding table of the tokens, with which they share one weight."""


class Head(nn.Module):
    """The norm and the last linear layer, [B, T, D] -> logits [B, T, V]."""

    def __init__(self, spec: TransformerSpec) -> None:
        super().__init__()
        self.norm = norm(spec)
        kind = TiedLogits if spec.tied else nn.Linear
        self.logits = kind(spec.width, spec.vocabulary, bias=False)

    def forward(self, x_BTD: torch.Tensor) -> torch.Tensor:
        """Returns logits."""
        return self.logits(self.norm(x_BTD))


class Transformer(nn.Module):
    """The whole transformer, ids [B, T] -> logits [B, T, V]."""

    def __init__(self, spec: TransformerSpec, context: StepContext) -> None:
        super().__init__()
        self.embedding = Embedding(spec, context)
        self.blocks = nn.ModuleList(Block(spec, block, context) for block in range(spec.layers))
        self.head = Head(spec)
        if spec.tied:
            self.head.logits.weight = self.embedding.tokens.weight

    def segments(self) -> dict[str, SegmentFunction]:
        """Returns the embedding, the blocks and the head."""
        blocks = {f"blocks/{i}": block for i, block in enumerate(self.blocks)}
        return {"embedding": self.embedding, **blocks, "head": self.head}

    def forward(self, x_BT: torch.Tensor) -> torch.Tensor:
        """Runs all segments in order."""
        return run_segments(self.segments().values(), x_BT)


def sequence_parallel_plan(spec: ModelSpec) -> dict[str, ParallelStyle]:
    """Returns, for each module, how it is parallelized if the sequence is split between the pairs of layers.

    An all-gather precedes each pair, a reduce-scatter follows it, and norms run on parts of the sequence.
    """
    _, *blocks, _ = spec.segments()
    plan: dict[str, ParallelStyle] = {
        "embedding": PrepareModuleOutput(output_layouts=Replicate(), desired_output_layouts=Shard(1)),
        "head.norm": SequenceParallel(),
        "head.logits": ColwiseParallel(input_layouts=Shard(1), use_local_output=False),
    }
    for block in (segment.name.replace("/", ".") for segment in blocks):
        plan |= {f"{block}.{norm}": SequenceParallel() for norm in ("attention_norm", "mlp_norm")}
        for pair in ("attention", "mlp"):
            plan[f"{block}.{pair}"] = PrepareModuleInput(input_layouts=Shard(1), desired_input_layouts=Replicate())
        plan |= {f"{block}.{out}": RowwiseParallel(output_layouts=Shard(1)) for out in ("attention.output", "mlp.down")}
    return plan
