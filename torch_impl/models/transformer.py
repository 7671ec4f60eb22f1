"""The transformer: pre-LN, causal, learned positions, exact GELU.

Shape suffixes: B batch, T tokens, D width, H heads, K width of a head, V vocabulary.

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
from samestep.common.workload.models.transformer import NORM_EPSILON, TransformerSpec
from samestep.torch_impl.features.applied import behind
from samestep.torch_impl.models.experts import Experts
from samestep.torch_impl.models.layers import activate
from samestep.torch_impl.models.segmented import SegmentFunction, run_segments
from samestep.torch_impl.step_context import StepContext


class Embedding(nn.Module):
    """Token table plus position table.

    Attributes:
        part: Which of the positions it is given, where a batch is cut by them as well.
    """

    def __init__(self, spec: TransformerSpec, context: StepContext) -> None:
        super().__init__()
        self.tokens = nn.Embedding(spec.vocabulary, spec.width)
        self.positions = nn.Embedding(spec.context, spec.width)
        self.behind = behind(spec, 0, context)
        self.part = Chunk()

    def forward(self, x_BT: torch.Tensor) -> torch.Tensor:
        """[B, T] ids -> [B, T, D]."""
        count = x_BT.shape[1]
        first = self.part.index * count % self.positions.num_embeddings  # 0 of whole examples, as in evaluation
        places_T = torch.arange(first, first + count, device=x_BT.device)
        return self.behind(self.tokens(x_BT) + self.positions(places_T))


def causal_attention(q_BHTK: torch.Tensor, k_BHTK: torch.Tensor, v_BHTK: torch.Tensor) -> torch.Tensor:
    """Mixes values: [B, H, T, K] each -> [B, H, T, K].

    Args:
        q_BHTK: Queries.
        k_BHTK: Keys.
        v_BHTK: Values.
    """
    return functional.scaled_dot_product_attention(q_BHTK, k_BHTK, v_BHTK, is_causal=True)


class Attention(nn.Module):
    """Causal self-attention; q, k and v are separate, k has no bias.

    Attributes:
        attend: Mixes the values, given queries, keys and values; another one where a rank has some of the positions.
    """

    def __init__(self, spec: TransformerSpec, block: int, context: StepContext) -> None:
        super().__init__()
        self.behind = behind(spec, 2 * block + 1, context, f"blocks/{block}/attention/output")
        self.head_width = spec.width // spec.heads
        self.query = nn.Linear(spec.width, spec.width)
        self.key = nn.Linear(spec.width, spec.width, bias=False)
        self.value = nn.Linear(spec.width, spec.width)
        self.output = nn.Linear(spec.width, spec.width)
        self.attend = causal_attention

    def forward(self, x_BTD: torch.Tensor) -> torch.Tensor:
        """[B, T, D] -> [B, T, D]; the number of heads follows from what the projections hold."""
        projected = (self.query(x_BTD), self.key(x_BTD), self.value(x_BTD))
        q_BHTK, k_BHTK, v_BHTK = (a.unflatten(-1, (-1, self.head_width)).transpose(1, 2) for a in projected)
        mixed_BHTK = self.attend(q_BHTK, k_BHTK, v_BHTK)
        return self.behind(self.output(mixed_BHTK.transpose(1, 2).flatten(2)))


class FeedForward(nn.Module):
    """Up to four times the width, the activation, down again."""

    def __init__(self, spec: TransformerSpec, block: int, context: StepContext) -> None:
        super().__init__()
        self.behind = behind(spec, 2 * block + 2, context, f"blocks/{block}/mlp/down")
        self.activation = spec.activation
        self.up = nn.Linear(spec.width, 4 * spec.width)
        self.down = nn.Linear(4 * spec.width, spec.width)

    def forward(self, x_BTD: torch.Tensor) -> torch.Tensor:
        """[B, T, D] -> [B, T, D]."""
        return self.behind(self.down(activate(self.activation, self.up(x_BTD))))


class Block(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x))."""

    def __init__(self, spec: TransformerSpec, block: int, context: StepContext) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(spec.width, eps=NORM_EPSILON)
        self.attention = Attention(spec, block, context)
        self.mlp_norm = nn.LayerNorm(spec.width, eps=NORM_EPSILON)
        self.mlp = (Experts if spec.experts else FeedForward)(spec, block, context)

    def forward(self, x_BTD: torch.Tensor) -> torch.Tensor:
        """[B, T, D] -> [B, T, D]."""
        x_BTD = x_BTD + self.attention(self.attention_norm(x_BTD))
        return x_BTD + self.mlp(self.mlp_norm(x_BTD))


class TiedLogits(nn.Linear):
    """Multiplies with the rows of the table of tokens: its weight is that of the embedding."""


class Head(nn.Module):
    """[B, T, D] -> logits [B, T, V]."""

    def __init__(self, spec: TransformerSpec) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(spec.width, eps=NORM_EPSILON)
        kind = TiedLogits if spec.tied else nn.Linear
        self.logits = kind(spec.width, spec.vocabulary, bias=False)

    def forward(self, x_BTD: torch.Tensor) -> torch.Tensor:
        """Computes logits."""
        return self.logits(self.norm(x_BTD))


class Transformer(nn.Module):
    """Ids [B, T] -> logits [B, T, V]."""

    def __init__(self, spec: TransformerSpec, context: StepContext) -> None:
        super().__init__()
        self.embedding = Embedding(spec, context)
        self.blocks = nn.ModuleList(Block(spec, block, context) for block in range(spec.layers))
        self.head = Head(spec)
        if spec.tied:
            self.head.logits.weight = self.embedding.tokens.weight

    def segments(self) -> dict[str, SegmentFunction]:
        """Lists the embedding, the blocks and the head."""
        blocks = {f"blocks/{i}": block for i, block in enumerate(self.blocks)}
        return {"embedding": self.embedding, **blocks, "head": self.head}

    def forward(self, x_BT: torch.Tensor) -> torch.Tensor:
        """Runs all segments in order."""
        return run_segments(self.segments().values(), x_BT)


def sequence_parallel_plan(spec: ModelSpec) -> dict[str, ParallelStyle]:
    """Module -> how it is parallelized where a rank holds only its part of the sequence between the pairs of layers.

    All-gather before a pair, reduce-scatter behind it, and norms on parts of the sequence.
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
