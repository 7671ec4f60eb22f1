"""The causal transformer, in the two styles of its spec.

Shape suffixes: B batch, T tokens, D width, H heads, G heads of keys, K width of a head, V vocabulary.
"""

import functools
import math
from collections.abc import Callable

import tensorflow as tf

from samestep.common.workload.models.transformer import ROTARY_BASE, TransformerSpec
from samestep.tf_impl.features.applied import behind
from samestep.tf_impl.models.experts import Experts
from samestep.tf_impl.models.inputs import Inputs, without_keys
from samestep.tf_impl.models.layers import ACTIVATIONS, Linear, Norm, Product, RootNorm, Table, VariableFactory
from samestep.tf_impl.models.segmented import SegmentFunction, run_segments

Attend = Callable[[tf.Tensor, tf.Tensor, tf.Tensor], tf.Tensor]
"""Queries, keys and values, [B, H, T, K] each -> the mixed values [B, H, T, K]."""
Rows = tf.Variable | tf.Tensor
OwnRows = Callable[[Rows, int], Rows]
"""(all rows of a table of positions, number of tokens) -> the rows of these tokens, where a replica has some of the positions."""


def turn(x_BHTK: tf.Tensor, cos_TK: tf.Tensor, sin_TK: tf.Tensor) -> tf.Tensor:
    """Rotates each element and the one half a head behind it, as a pair, by an angle (rotary positions).

    Args:
        x_BHTK: Queries or keys.
        cos_TK: The cosine of the angle of each pair.
        sin_TK: The sine of the angle of each pair.

    References:
        Su et al., arXiv 2104.09864.
    """
    first, second = tf.split(x_BHTK, 2, axis=-1)
    return x_BHTK * cos_TK + tf.concat((-second, first), -1) * sin_TK


class Attention:
    """Causal self-attention; q, k and v are separate, k has no bias, and keys and values may have fewer heads.

    Attributes:
        own_rows: As in `Transformer`, for the cosines and sines.
        attend: Computes attention, given queries, keys and values; it is replaced where a replica has some of the positions.
    """

    def __init__(self, variable: VariableFactory, name: str, spec: TransformerSpec) -> None:
        self.head_width, self.queries_a_key = spec.width // spec.heads, spec.heads // spec.num_key_heads
        self.is_rotary, has_biases, self.whole = spec.is_llama, not spec.is_llama, spec.context
        self.own_rows: OwnRows = lambda table, tokens: table
        self.query = Linear(variable, f"{name}/query", has_biases)
        self.key = Linear(variable, f"{name}/key", bias=False)
        self.value = Linear(variable, f"{name}/value", has_biases)
        self.output = Linear(variable, f"{name}/output", has_biases)
        self.product = variable.product
        self.attend: Attend = self.mix

    def __call__(self, x_BTD: tf.Tensor) -> tf.Tensor:
        """Computes attention: [B, T, D] -> [B, T, D]."""
        tokens, width = x_BTD.shape[1:]
        projected = (self.query(x_BTD), self.key(x_BTD), self.value(x_BTD))
        q_BHTK, k_BGTK, v_BGTK = (self._split(a, tokens) for a in projected)
        if self.is_rotary:
            angles = self._angles(tokens, x_BTD.dtype)
            q_BHTK, k_BGTK = turn(q_BHTK, *angles), turn(k_BGTK, *angles)
        mixed_BHTK = self.attend(q_BHTK, self._for_queries(k_BGTK), self._for_queries(v_BGTK))
        return self.output(tf.reshape(tf.transpose(mixed_BHTK, (0, 2, 1, 3)), (-1, tokens, width)))

    def mix(self, q_BHTK: tf.Tensor, k_BHTK: tf.Tensor, v_BHTK: tf.Tensor, first: int = 0) -> tf.Tensor:
        """Mixes values: [B, H, T, K] each -> [B, H, T, K]; there may be fewer queries than keys.

        Args:
            q_BHTK: Queries.
            k_BHTK: Keys.
            v_BHTK: Values.
            first: The place of the first query among the keys.
        """
        scores_BHTT = self.product(tf.matmul, q_BHTK, k_BHTK, transpose_b=True) / math.sqrt(self.head_width)
        causal_TT = tf.linalg.band_part(tf.ones((q_BHTK.shape[2], k_BHTK.shape[2]), tf.bool), -1, first)
        scores_BHTT = tf.where(causal_TT, scores_BHTT, tf.constant(-math.inf, scores_BHTT.dtype))
        return self.product(tf.matmul, tf.nn.softmax(scores_BHTT), v_BHTK)

    def _angles(self, tokens: int, dtype: tf.DType) -> tuple[Rows, Rows]:
        """Returns cosines and sines [T, K], which are computed in float64 and then cast."""
        half = self.head_width // 2
        exponents = tf.range(half, dtype=tf.float64) / -half
        angles = tf.tensordot(tf.range(self.whole, dtype=tf.float64), ROTARY_BASE**exponents, axes=0)
        angles_TK = tf.tile(angles, (1, 2))
        cos_TK, sin_TK = (tf.cast(function(angles_TK), dtype) for function in (tf.cos, tf.sin))
        return self.own_rows(cos_TK, tokens), self.own_rows(sin_TK, tokens)

    def _for_queries(self, x_BGTK: tf.Tensor) -> tf.Tensor:
        """Repeats the keys or values of a head for each head of queries that it serves."""
        if self.queries_a_key == 1:
            return x_BGTK
        heads, tokens = x_BGTK.shape[1] * self.queries_a_key, x_BGTK.shape[2]
        return tf.reshape(tf.stack([x_BGTK] * self.queries_a_key, axis=2), (-1, heads, tokens, self.head_width))

    def _split(self, x_BTD: tf.Tensor, tokens: int) -> tf.Tensor:
        heads = x_BTD.shape[2] // self.head_width
        return tf.transpose(tf.reshape(x_BTD, (-1, tokens, heads, self.head_width)), (0, 2, 1, 3))


class FeedForward:
    """A layer up to four times the width, the activation, and a layer down again."""

    def __init__(self, variable: VariableFactory, name: str, spec: TransformerSpec) -> None:
        self.activate = ACTIVATIONS[spec.activation]
        self.up = Linear(variable, f"{name}/up")
        self.down = Linear(variable, f"{name}/down")

    def __call__(self, x_BTD: tf.Tensor) -> tf.Tensor:
        """Transforms each position: [B, T, D] -> [B, T, D]."""
        return self.down(self.activate(self.up(x_BTD)))


class GatedMlp:
    """A gated mlp without biases (SwiGLU): down(silu(gate(x)) * up(x))."""

    def __init__(self, variable: VariableFactory, name: str, spec: TransformerSpec) -> None:
        self.up, self.gate, self.down = (
            Linear(variable, f"{name}/{layer}", bias=False) for layer in ("up", "gate", "down")
        )

    def __call__(self, x_BTD: tf.Tensor) -> tf.Tensor:
        """Transforms each position: [B, T, D] -> [B, T, D]."""
        one = tf.constant(1.0, x_BTD.dtype)  # otherwise a cast of it is kept for the backward pass
        return self.down(tf.nn.silu(self.gate(x_BTD), one) * self.up(x_BTD))


class Block:
    """A block of the transformer: x + attention(norm(x)), then x + mlp(norm(x))."""

    def __init__(self, variable: VariableFactory, block: int, spec: TransformerSpec) -> None:
        name = f"blocks/{block}"
        norm = RootNorm if spec.is_llama else Norm
        self.behind = [behind(spec, 2 * block + i) for i in (1, 2)]
        self.attention_norm = norm(variable, f"{name}/attention_norm")
        self.attention = Attention(variable, f"{name}/attention", spec)
        self.mlp_norm = norm(variable, f"{name}/mlp_norm")
        mlp = Experts if spec.experts else GatedMlp if spec.is_llama else FeedForward
        self.mlp = mlp(variable, f"{name}/mlp", spec)

    def __call__(self, x_BTD: tf.Tensor, keys_B: tf.Tensor | None = None) -> tf.Tensor:
        """Runs the block: [B, T, D] -> [B, T, D].

        Args:
            x_BTD: The residual stream.
            keys_B: The key of each example; None in evaluation.
        """
        first, second = self.behind
        x_BTD = x_BTD + first(self.attention(self.attention_norm(x_BTD)), keys_B)
        return x_BTD + second(self.mlp(self.mlp_norm(x_BTD)), keys_B)


class TiedLogits:
    """Multiplies by the embedding table of the tokens: both share one weight."""

    def __init__(self, tokens: Table, product: Product) -> None:
        self.tokens, self.product = tokens, product

    def __call__(self, x_BTD: tf.Tensor) -> tf.Tensor:
        """Computes logits: [B, T, D] -> [B, T, V]."""
        tokens, width = x_BTD.shape[1:]
        table_VD = tf.convert_to_tensor(self.tokens.table)  # whole, wherever its rows are
        logits = self.product(tf.matmul, tf.reshape(x_BTD, (-1, width)), table_VD, transpose_b=True)
        return tf.reshape(logits, (-1, tokens, table_VD.shape[0]))


class Transformer:
    """A transformer: ids [B, T] -> logits [B, T, V].

    Attributes:
        noting: The mixtures of experts by the segment that each is in.
        own_rows: Returns the rows of the table of positions for a replica's tokens, which need not be the first ones.
    """

    def __init__(self, spec: TransformerSpec, variable: VariableFactory) -> None:
        self.tokens = Table(variable, "embedding/tokens")
        self.positions = None if spec.is_llama else Table(variable, "embedding/positions")
        self.behind = behind(spec, 0)
        self.keys: tf.Tensor | None = None
        self.own_rows: OwnRows = lambda table, tokens: table
        self.blocks = [Block(variable, block, spec) for block in range(spec.layers)]
        mixtures = ((f"blocks/{i}", block.mlp) for i, block in enumerate(self.blocks))
        self.noting = {name: mlp for name, mlp in mixtures if isinstance(mlp, Experts)}
        self.norm = (RootNorm if spec.is_llama else Norm)(variable, "head/norm")
        self.logits = (
            TiedLogits(self.tokens, variable.product) if spec.tied else Linear(variable, "head/logits", bias=False)
        )

    def segments(self) -> dict[str, SegmentFunction]:
        """Lists the embedding, which adds tokens and positions, the blocks and the head."""
        keys_B = self.keys

        def embed(x_BT: tf.Tensor) -> tf.Tensor:
            x_BTD = self.tokens(x_BT)
            if self.positions is not None:
                x_BTD = x_BTD + self.own_rows(self.positions.table, x_BT.shape[1])
            return self.behind(x_BTD, keys_B)

        blocks = {f"blocks/{i}": functools.partial(block, keys_B=keys_B) for i, block in enumerate(self.blocks)}
        return {"embedding": embed, **blocks, "head": lambda x_BTD: self.logits(self.norm(x_BTD))}

    def __call__(self, x: Inputs) -> tf.Tensor:
        """Runs all segments in order."""
        x_BT, self.keys = without_keys(x)
        return run_segments(self.segments().values(), x_BT)
