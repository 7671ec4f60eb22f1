"""The transformer: pre-LN, causal, learned positions, exact GELU.

Shape suffixes: B batch, T tokens, D width, H heads, K width of a head, V vocabulary.
"""

import dataclasses
import math
from collections.abc import Callable

import numpy as np

from samestep.common.program import Arrays
from samestep.common.reference.features.applied import behind
from samestep.common.reference.models.experts import Experts
from samestep.common.reference.models.layers import (
    ACTIVATIONS,
    Linear,
    Norm,
    Residual,
    Saved,
    Sequential,
    rows_times,
    scatter_rows,
)
from samestep.common.reference.step_context import StepContext
from samestep.common.workload.models.transformer import TOKENS, TransformerSpec


@dataclasses.dataclass
class Embedding:
    """Token table plus position table."""

    name: str

    def forward(self, params: Arrays, x: np.ndarray) -> tuple[np.ndarray, Saved]:
        """[B, T] ids -> [B, T, D]."""
        return params[f"{self.name}/tokens/table"][x] + params[f"{self.name}/positions/table"], x

    def backward(self, params: Arrays, saved: Saved, dy: np.ndarray, gradients: Arrays) -> np.ndarray:
        """Ids have no gradient; rows looked up twice add up."""
        rows = len(params[f"{self.name}/tokens/table"])
        looked_up = scatter_rows(saved.ravel(), dy.reshape(-1, dy.shape[-1]), rows)
        gradients[f"{self.name}/tokens/table"] = gradients.get(f"{self.name}/tokens/table", 0.0) + looked_up
        gradients[f"{self.name}/positions/table"] = dy.sum(axis=0)
        return dy


class Attention:
    """Causal self-attention; q, k and v are separate, k has no bias.

    Attributes:
        sees: Returns for so many positions which of them, in columns, each one sees.
    """

    def __init__(self, name: str, heads: int) -> None:
        self.heads = heads
        self.sees: Callable[[int], np.ndarray] = np.tri
        self.query = Linear(f"{name}/query")
        self.key = Linear(f"{name}/key", bias=False)
        self.value = Linear(f"{name}/value")
        self.output = Linear(f"{name}/output")

    def forward(self, params: Arrays, x: np.ndarray) -> tuple[np.ndarray, Saved]:
        """[B, T, D] -> [B, T, D]."""
        (q, x_BTD), (k, _), (v, _) = (part.forward(params, x) for part in (self.query, self.key, self.value))
        q_BHTK, k_BHTK, v_BHTK = (self._split(a) for a in (q, k, v))
        scores_BHTT = q_BHTK @ k_BHTK.swapaxes(-1, -2)
        scores_BHTT /= math.sqrt(q_BHTK.shape[-1])
        scores_BHTT += np.where(self.sees(x.shape[1]), 0, -np.inf)
        scores_BHTT -= scores_BHTT.max(axis=-1, keepdims=True)
        weights_BHTT = np.exp(scores_BHTT, out=scores_BHTT)
        weights_BHTT /= weights_BHTT.sum(axis=-1, keepdims=True)
        mixed_BTD = self._merge(weights_BHTT @ v_BHTK)
        y, _ = self.output.forward(params, mixed_BTD)
        return y, (x_BTD, q_BHTK, k_BHTK, v_BHTK, weights_BHTT, mixed_BTD)

    def backward(self, params: Arrays, saved: Saved, dy: np.ndarray, gradients: Arrays) -> np.ndarray:
        """Through the output, the mixture, the softmax and the scores."""
        x_BTD, q_BHTK, k_BHTK, v_BHTK, weights_BHTT, mixed_BTD = saved
        dmixed_BHTK = self._split(self.output.backward(params, mixed_BTD, dy, gradients))
        dweights_BHTT = dmixed_BHTK @ v_BHTK.swapaxes(-1, -2)
        dv_BHTK = weights_BHTT.swapaxes(-1, -2) @ dmixed_BHTK
        dweights_BHTT -= np.einsum("bhtu,bhtu->bht", dweights_BHTT, weights_BHTT)[..., None]
        dscores_BHTT = weights_BHTT * dweights_BHTT / math.sqrt(q_BHTK.shape[-1])
        dq_BHTK = dscores_BHTT @ k_BHTK
        dk_BHTK = dscores_BHTT.swapaxes(-1, -2) @ q_BHTK
        parts = ((self.query, dq_BHTK), (self.key, dk_BHTK), (self.value, dv_BHTK))
        return sum(part.backward(params, x_BTD, self._merge(da), gradients) for part, da in parts)

    def _split(self, x_BTD: np.ndarray) -> np.ndarray:
        batch, tokens, _ = x_BTD.shape
        return x_BTD.reshape(batch, tokens, self.heads, -1).transpose(0, 2, 1, 3)

    def _merge(self, x_BHTK: np.ndarray) -> np.ndarray:
        batch, _, tokens, _ = x_BHTK.shape
        return x_BHTK.transpose(0, 2, 1, 3).reshape(batch, tokens, -1)


def Block(block: int, spec: TransformerSpec, context: StepContext) -> Sequential:  # noqa: N802 (a class in the other two mirrors)
    """X + attention(norm(x)), then x + mlp(norm(x)).

    Args:
        block: Its number.
        spec: The spec of the model.
        context: The context of the model.
    """
    name, (first, second) = f"blocks/{block}", (behind(spec, 2 * block + i, context) for i in (1, 2))
    inner = [Linear(f"{name}/mlp/up"), ACTIVATIONS[spec.activation](), Linear(f"{name}/mlp/down")]
    attention = Sequential([Norm(f"{name}/attention_norm"), Attention(f"{name}/attention", spec.heads), *first])
    if spec.experts:
        inner = [Experts(f"{name}/mlp", spec, context)]
    mlp = Sequential([Norm(f"{name}/mlp_norm"), *inner, *second])
    return Sequential([Residual(attention), Residual(mlp)])


@dataclasses.dataclass
class TiedLogits:
    """Multiplies with the rows of a table that an embedding has looked up."""

    table: str

    def forward(self, params: Arrays, x: np.ndarray) -> tuple[np.ndarray, Saved]:
        """[B, T, D] -> logits [B, T, V]."""
        return rows_times(x, params[self.table].T), x

    def backward(self, params: Arrays, saved: Saved, dy: np.ndarray, gradients: Arrays) -> np.ndarray:
        """Returns the first half of the table's gradient; the embedding adds the other one."""
        gradients[self.table] = dy.reshape(-1, dy.shape[-1]).T @ saved.reshape(-1, saved.shape[-1])
        return rows_times(dy, params[self.table])


def Head(spec: TransformerSpec) -> Sequential:  # noqa: N802 (a class in the other two mirrors)
    """[B, T, D] -> logits [B, T, V]."""
    return Sequential([Norm("head/norm"), TiedLogits(TOKENS) if spec.tied else Linear("head/logits", bias=False)])


def Transformer(spec: TransformerSpec, context: StepContext) -> Sequential:  # noqa: N802 (a class in the other two mirrors)
    """Ids [B, T] -> logits [B, T, V].

    Args:
        spec: Its sizes.
        context: What its layers read of the present micro-batch.
    """
    blocks = [Block(block, spec, context) for block in range(spec.layers)]
    return Sequential([Embedding("embedding"), *behind(spec, 0, context), *blocks, Head(spec)])
