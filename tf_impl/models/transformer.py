"""The transformer: pre-LN, causal, learned positions, exact GELU.

Shape suffixes: B batch, T tokens, D width, H heads, K width of a head, V vocabulary.
"""

import math

import tensorflow as tf

from samestep.common.workload.models.transformer import TransformerSpec
from samestep.tf_impl.models.layers import Linear, Norm, Table, VariableFactory, gelu


class Embedding(tf.Module):
    """Token table plus position table."""

    def __init__(self, variable: VariableFactory, name: str) -> None:
        super().__init__()
        self.tokens = Table(variable, f"{name}/tokens")
        self.positions = Table(variable, f"{name}/positions")

    def __call__(self, x_BT: tf.Tensor) -> tf.Tensor:
        """[B, T] ids -> [B, T, D]."""
        return self.tokens(x_BT) + self.positions.table


class Attention(tf.Module):
    """Causal self-attention; q, k and v are separate, k has no bias."""

    def __init__(self, variable: VariableFactory, name: str, spec: TransformerSpec) -> None:
        super().__init__()
        self.heads, self.head_width = spec.heads, spec.width // spec.heads
        self.query = Linear(variable, f"{name}/query")
        self.key = Linear(variable, f"{name}/key", bias=False)
        self.value = Linear(variable, f"{name}/value")
        self.output = Linear(variable, f"{name}/output")

    def __call__(self, x_BTD: tf.Tensor) -> tf.Tensor:
        """[B, T, D] -> [B, T, D]."""
        tokens, width = x_BTD.shape[1:]
        projected = (self.query(x_BTD), self.key(x_BTD), self.value(x_BTD))
        q_BHTK, k_BHTK, v_BHTK = (self._split(a, tokens) for a in projected)
        scores_BHTT = tf.matmul(q_BHTK, k_BHTK, transpose_b=True) / math.sqrt(self.head_width)
        causal_TT = tf.linalg.band_part(tf.ones((tokens, tokens), tf.bool), -1, 0)
        scores_BHTT = tf.where(causal_TT, scores_BHTT, tf.constant(-math.inf, scores_BHTT.dtype))
        mixed_BHTK = tf.matmul(tf.nn.softmax(scores_BHTT), v_BHTK)
        return self.output(tf.reshape(tf.transpose(mixed_BHTK, (0, 2, 1, 3)), (-1, tokens, width)))

    def _split(self, x_BTD: tf.Tensor, tokens: int) -> tf.Tensor:
        return tf.transpose(tf.reshape(x_BTD, (-1, tokens, self.heads, self.head_width)), (0, 2, 1, 3))


class FeedForward(tf.Module):
    """Up to four times the width, GELU, down again."""

    def __init__(self, variable: VariableFactory, name: str) -> None:
        super().__init__()
        self.up = Linear(variable, f"{name}/up")
        self.down = Linear(variable, f"{name}/down")

    def __call__(self, x_BTD: tf.Tensor) -> tf.Tensor:
        """[B, T, D] -> [B, T, D]."""
        return self.down(gelu(self.up(x_BTD)))


class Block(tf.Module):
    """x + attention(norm(x)), then x + mlp(norm(x))."""

    def __init__(self, variable: VariableFactory, name: str, spec: TransformerSpec) -> None:
        super().__init__()
        self.attention_norm = Norm(variable, f"{name}/attention_norm")
        self.attention = Attention(variable, f"{name}/attention", spec)
        self.mlp_norm = Norm(variable, f"{name}/mlp_norm")
        self.mlp = FeedForward(variable, f"{name}/mlp")

    def __call__(self, x_BTD: tf.Tensor) -> tf.Tensor:
        """[B, T, D] -> [B, T, D]."""
        x_BTD = x_BTD + self.attention(self.attention_norm(x_BTD))
        return x_BTD + self.mlp(self.mlp_norm(x_BTD))


class Head(tf.Module):
    """[B, T, D] -> logits [B, T, V]."""

    def __init__(self, variable: VariableFactory, name: str) -> None:
        super().__init__()
        self.norm = Norm(variable, f"{name}/norm")
        self.logits = Linear(variable, f"{name}/logits", bias=False)

    def __call__(self, x_BTD: tf.Tensor) -> tf.Tensor:
        """Untied from the token table."""
        return self.logits(self.norm(x_BTD))


class Transformer(tf.Module):
    """Ids [B, T] -> logits [B, T, V]."""

    def __init__(self, spec: TransformerSpec, variable: VariableFactory) -> None:
        super().__init__()
        self.embedding = Embedding(variable, "embedding")
        self.blocks = [Block(variable, f"blocks/{block}", spec) for block in range(spec.layers)]
        self.head = Head(variable, "head")

    def __call__(self, x_BT: tf.Tensor) -> tf.Tensor:
        """Embedding, blocks, head."""
        x_BTD = self.embedding(x_BT)
        for block in self.blocks:
            x_BTD = block(x_BTD)
        return self.head(x_BTD)
