"""The causal transformer, in the two styles of its spec.

Shape suffixes: B batch, T tokens, D width, H heads, G heads of keys, K width of a head, V vocabulary.
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
    Layer,
    Linear,
    Norm,
    Residual,
    RootNorm,
    Saved,
    Sequential,
    Silu,
    rows_times,
    scatter_rows,
)
from samestep.common.reference.step_context import StepContext
from samestep.common.workload.models.transformer import ROTARY_BASE, TOKENS, TransformerSpec


class Embedding:
    """Looks up tokens in one table, and adds the rows of their positions if there is a table of positions.

    Attributes:
        places: The number of tokens -> their positions.
    """

    def __init__(self, name: str, has_positions: bool) -> None:
        self.tokens, self.positions = f"{name}/tokens/table", f"{name}/positions/table" if has_positions else ""
        self.places: Callable[[int], np.ndarray] = np.arange

    def forward(self, params: Arrays, x: np.ndarray) -> tuple[np.ndarray, Saved]:
        """Looks up ids [B, T], and returns [B, T, D]."""
        looked_up = params[self.tokens][x]
        return looked_up + params[self.positions][self.places(x.shape[1])] if self.positions else looked_up, x

    def backward(self, params: Arrays, saved: Saved, dy: np.ndarray, gradients: Arrays) -> np.ndarray:
        """Writes the tables' gradients, where rows looked up twice add up; ids have no gradient."""
        looked_up = scatter_rows(saved.ravel(), dy.reshape(-1, dy.shape[-1]), len(params[self.tokens]))
        gradients[self.tokens] = gradients.get(self.tokens, 0.0) + looked_up
        if self.positions:
            places = self.places(saved.shape[1])
            gradients[self.positions] = scatter_rows(places, dy.sum(axis=0), len(params[self.positions]))
        return dy


class Attention:
    """Causal self-attention. Query, key and value are separate layers, keys have no bias, and may have fewer heads, like values.

    Attributes:
        sees: The number of positions -> for each position (row), whether it sees each position (column).
        places: The number of tokens -> their positions, by which a rotary embedding turns queries and keys.
    """

    def __init__(self, name: str, spec: TransformerSpec) -> None:
        self.head_width, self.queries_a_key = spec.width // spec.heads, spec.heads // spec.num_key_heads
        self.is_rotary, has_biases = spec.is_llama, not spec.is_llama
        self.sees: Callable[[int], np.ndarray] = np.tri
        self.places: Callable[[int], np.ndarray] = np.arange
        self.query = Linear(f"{name}/query", has_biases)
        self.key = Linear(f"{name}/key", bias=False)
        self.value = Linear(f"{name}/value", has_biases)
        self.output = Linear(f"{name}/output", has_biases)

    def forward(self, params: Arrays, x: np.ndarray) -> tuple[np.ndarray, Saved]:
        """Applies attention, [B, T, D] -> [B, T, D]."""
        (q, x_BTD), (k, _), (v, _) = (part.forward(params, x) for part in (self.query, self.key, self.value))
        q_BHTK, k_BGTK, v_BGTK = (self._split(a) for a in (q, k, v))
        if self.is_rotary:
            q_BHTK, k_BGTK = (self._turn(a, 1) for a in (q_BHTK, k_BGTK))
        k_BHTK, v_BHTK = (a.repeat(self.queries_a_key, axis=1) for a in (k_BGTK, v_BGTK))
        scores_BHTT = q_BHTK @ k_BHTK.swapaxes(-1, -2)
        scores_BHTT /= math.sqrt(self.head_width)
        scores_BHTT += np.where(self.sees(x.shape[1]), 0, -np.inf)
        scores_BHTT -= scores_BHTT.max(axis=-1, keepdims=True)
        weights_BHTT = np.exp(scores_BHTT, out=scores_BHTT)
        weights_BHTT /= weights_BHTT.sum(axis=-1, keepdims=True)
        mixed_BTD = self._merge(weights_BHTT @ v_BHTK)
        y, _ = self.output.forward(params, mixed_BTD)
        return y, (x_BTD, q_BHTK, k_BHTK, v_BHTK, weights_BHTT, mixed_BTD)

    def backward(self, params: Arrays, saved: Saved, dy: np.ndarray, gradients: Arrays) -> np.ndarray:
        """Propagates the gradient through the output layer, the weighted values, the softmax and the scores."""
        x_BTD, q_BHTK, k_BHTK, v_BHTK, weights_BHTT, mixed_BTD = saved
        dmixed_BHTK = self._split(self.output.backward(params, mixed_BTD, dy, gradients))
        dweights_BHTT = dmixed_BHTK @ v_BHTK.swapaxes(-1, -2)
        dv_BHTK = weights_BHTT.swapaxes(-1, -2) @ dmixed_BHTK
        dweights_BHTT -= np.einsum("bhtu,bhtu->bht", dweights_BHTT, weights_BHTT)[..., None]
        dscores_BHTT = weights_BHTT * dweights_BHTT / math.sqrt(self.head_width)
        dq_BHTK = dscores_BHTT @ k_BHTK
        dk_BHTK = dscores_BHTT.swapaxes(-1, -2) @ q_BHTK
        dk_BGTK, dv_BGTK = (self._sum_queries(da) for da in (dk_BHTK, dv_BHTK))
        if self.is_rotary:
            dq_BHTK, dk_BGTK = (self._turn(da, -1) for da in (dq_BHTK, dk_BGTK))
        parts = ((self.query, dq_BHTK), (self.key, dk_BGTK), (self.value, dv_BGTK))
        return sum(part.backward(params, x_BTD, self._merge(da), gradients) for part, da in parts)  # pyrefly: ignore[bad-return]

    def _turn(self, x_BHTK: np.ndarray, way: int) -> np.ndarray:
        """Rotates each element, paired with the one half a head behind it, by its position's angle; `way` -1 rotates back."""
        half = self.head_width // 2
        angles = np.outer(self.places(x_BHTK.shape[2]), ROTARY_BASE ** (-np.arange(half) / half))
        turned = (x_BHTK[..., :half] + 1j * x_BHTK[..., half:]) * np.exp(1j * way * angles)
        return np.concatenate((turned.real, turned.imag), axis=-1)

    def _sum_queries(self, x_BHTK: np.ndarray) -> np.ndarray:
        """Adds up the gradients of the query heads that share a head of keys: [B, H, T, K] -> [B, G, T, K]."""
        batch, heads, tokens, width = x_BHTK.shape
        return x_BHTK.reshape(batch, heads // self.queries_a_key, self.queries_a_key, tokens, width).sum(axis=2)

    def _split(self, x_BTD: np.ndarray) -> np.ndarray:
        batch, tokens, _ = x_BTD.shape
        return x_BTD.reshape(batch, tokens, -1, self.head_width).transpose(0, 2, 1, 3)

    def _merge(self, x_BHTK: np.ndarray) -> np.ndarray:
        batch, _, tokens, _ = x_BHTK.shape
        return x_BHTK.transpose(0, 2, 1, 3).reshape(batch, tokens, -1)


class GatedMlp:
    """Computes down(silu(gate(x)) * up(x)), without biases (SwiGLU)."""

    def __init__(self, name: str) -> None:
        self.up, self.gate, self.down = (Linear(f"{name}/{layer}", bias=False) for layer in ("up", "gate", "down"))
        self.activation = Silu()

    def forward(self, params: Arrays, x: np.ndarray) -> tuple[np.ndarray, Saved]:
        """Applies the gated MLP, [B, T, D] -> [B, T, D]."""
        (up, _), (gate, _) = self.up.forward(params, x), self.gate.forward(params, x)
        open_, of_gate = self.activation.forward(params, gate)
        inner = open_ * up
        return self.down.forward(params, inner)[0], (x, up, open_, of_gate, inner)

    def backward(self, params: Arrays, saved: Saved, dy: np.ndarray, gradients: Arrays) -> np.ndarray:
        """Propagates the gradient through the product to both layers."""
        x, up, open_, of_gate, inner = saved
        dinner = self.down.backward(params, inner, dy, gradients)
        dgate = self.activation.backward(params, of_gate, dinner * up, gradients)
        dx = self.up.backward(params, x, dinner * open_, gradients)
        return dx + self.gate.backward(params, x, dgate, gradients)


def _mlp(name: str, spec: TransformerSpec, context: StepContext) -> list[Layer]:
    if spec.experts:
        return [Experts(name, lambda: Sequential(_one_mlp(name, spec)), spec, context)]
    return _one_mlp(name, spec)


def _one_mlp(name: str, spec: TransformerSpec) -> list[Layer]:
    if spec.is_llama:
        return [GatedMlp(name)]
    return [Linear(f"{name}/up"), ACTIVATIONS[spec.activation](), Linear(f"{name}/down")]


def Block(block: int, spec: TransformerSpec, context: StepContext) -> Sequential:  # noqa: N802 (a class in the other two mirrors)
    """Builds a block: x + attention(norm(x)), then x + mlp(norm(x)).

    Args:
        block: The number of the block.
        spec: The spec of the model.
        context: The context of the model.
    """
    name, (first, second) = f"blocks/{block}", (behind(spec, 2 * block + i, context) for i in (1, 2))
    norm = RootNorm if spec.is_llama else Norm
    attention = Sequential([norm(f"{name}/attention_norm"), Attention(f"{name}/attention", spec), *first])
    mlp = Sequential([norm(f"{name}/mlp_norm"), *_mlp(f"{name}/mlp", spec, context), *second])
    return Sequential([Residual(attention), Residual(mlp)])


@dataclasses.dataclass
class TiedLogits:
    """Multiplies by the table in which the embedding looks up its rows."""

    table: str

    def forward(self, params: Arrays, x: np.ndarray) -> tuple[np.ndarray, Saved]:
        """Maps [B, T, D] to logits [B, T, V]."""
        return rows_times(x, params[self.table].T), x

    def backward(self, params: Arrays, saved: Saved, dy: np.ndarray, gradients: Arrays) -> np.ndarray:
        """Writes this layer's part of the table's gradient, to which the embedding adds its own, and returns the input's."""
        gradients[self.table] = dy.reshape(-1, dy.shape[-1]).T @ saved.reshape(-1, saved.shape[-1])
        return rows_times(dy, params[self.table])


def Head(spec: TransformerSpec) -> Sequential:  # noqa: N802 (a class in the other two mirrors)
    """Builds the head, [B, T, D] -> logits [B, T, V]."""
    norm = RootNorm if spec.is_llama else Norm
    return Sequential([norm("head/norm"), TiedLogits(TOKENS) if spec.tied else Linear("head/logits", bias=False)])


def Transformer(spec: TransformerSpec, context: StepContext) -> Sequential:  # noqa: N802 (a class in the other two mirrors)
    """Builds the network, ids [B, T] -> logits [B, T, V].

    Args:
        spec: The sizes of the model.
        context: What its layers need to know about the current micro-batch.
    """
    blocks = [Block(block, spec, context) for block in range(spec.layers)]
    return Sequential([Embedding("embedding", not spec.is_llama), *behind(spec, 0, context), *blocks, Head(spec)])
