"""What layers compute, in NumPy and in TensorFlow's layout, with everything that ports get wrong as an argument.

Channels are last, a kernel is [inputs, outputs], a filter [*space, inputs, outputs]. These recognize what a framework did;
nothing trains with them.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Self

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from scipy import special

Pads = Sequence[tuple[int, int]]
"""The padding before and after, for each spatial dim."""
MERGES: Mapping[str, Callable[[Sequence[np.ndarray]], np.ndarray]] = {
    "side by side": lambda both: np.concatenate(both, axis=-1),
    "added": lambda both: both[0] + both[1],
    "averaged": lambda both: (both[0] + both[1]) / 2,
    "multiplied": lambda both: both[0] * both[1],
}
"""How the two directions of a recurrent layer are merged."""


def softmax(x: np.ndarray, axis: int = -1) -> np.ndarray:
    """Computes the softmax over an axis.

    Args:
        x: The array.
        axis: The axis.
    """
    return special.softmax(x, axis=axis)


class NumberedName(str):
    """The name of an activation that ends in its number, as in "relu up to 0.5"; names that are spelled alike are equal.

    Attributes:
        kind: The name ahead of the number.
        number: The number, which may have more digits than the name has.
    """

    __slots__ = ("kind", "number")

    kind: str
    number: float

    def __new__(cls, kind: str, number: float) -> Self:
        """Appends the number to the name of the kind."""
        made = super().__new__(cls, f"{kind} {number:g}")
        made.kind, made.number = kind, number
        return made


LEAKY, LIMITED = "leaky relu of slope", "relu up to"


def leaky(slope: float) -> Callable[[np.ndarray], np.ndarray]:
    """Returns the leaky ReLU of a slope."""
    return lambda x: np.where(x > 0, x, slope * x)


ACTIVATIONS: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {
    "none": lambda x: x,
    "relu": lambda x: np.maximum(x, 0),
    "exact gelu": lambda x: 0.5 * x * (1 + special.erf(x / np.sqrt(2))),
    "gelu by tanh": lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    "gelu by sigmoid": lambda x: x * special.expit(1.702 * x),
    "silu": lambda x: x * special.expit(x),
    "tanh": np.tanh,
    "sigmoid": special.expit,
    "softmax": softmax,
    "elu": lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))),
    "softplus": lambda x: np.logaddexp(x, 0),
    **{NumberedName(LEAKY, slope): leaky(slope) for slope in (0.01, 0.2, 0.3)},
    "relu6": lambda x: np.clip(x, 0, 6),
    "hard sigmoid": lambda x: np.clip(x + 3, 0, 6) / 6,
    "old hard sigmoid": lambda x: np.clip(0.2 * x + 0.5, 0, 1),
    "softsign": lambda x: x / (1 + np.abs(x)),
    "selu": lambda x: 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(np.minimum(x, 0))),
    "mish": lambda x: x * np.tanh(np.logaddexp(x, 0)),
    "log of softmax": lambda x: special.log_softmax(x, axis=-1),
    "hard tanh": lambda x: np.clip(x, -1, 1),
    "squared relu": lambda x: np.square(np.maximum(x, 0)),
    "square": np.square,
    "absolute value": np.abs,
    "exponential": np.exp,
    "hard swish": lambda x: x * np.clip(x + 3, 0, 6) / 6,
}
"""The activations by their names in messages."""


def pad(x: np.ndarray, pads: Pads, value: float = 0.0) -> np.ndarray:
    """Pads the spatial dims of [batch, *space, channels].

    Args:
        x: The array.
        pads: The padding before and after, for each spatial dim.
        value: The value of the padding.
    """
    return np.pad(x, [(0, 0), *pads, (0, 0)], constant_values=value)


def windows(x: np.ndarray, size: Sequence[int], strides: Sequence[int], dilation: Sequence[int]) -> np.ndarray:
    """Cuts [batch, *space, channels] into windows [batch, *positions, channels, *size].

    Args:
        x: The padded array.
        size: The size of a window.
        strides: The strides from one window to the next.
        dilation: The distance between two elements of a window.
    """
    reach = [(n - 1) * d + 1 for n, d in zip(size, dilation, strict=True)]
    cut = sliding_window_view(x, reach, axis=tuple(range(1, 1 + len(reach))))
    cut = cut[(slice(None), *(slice(None, None, s) for s in strides))]
    return cut[(..., *(slice(None, None, d) for d in dilation))]


def convolve(
    x: np.ndarray,
    kernel: np.ndarray,
    strides: Sequence[int],
    pads: Pads,
    dilation: Sequence[int],
    groups: int = 1,
) -> np.ndarray:
    """Cross-correlates [batch, *space, inputs] with a filter.

    Args:
        x: The inputs.
        kernel: [*size, inputs / groups, outputs].
        strides: The stride along each spatial dimension.
        pads: The padding along each spatial dimension.
        dilation: The dilation along each spatial dimension.
        groups: The number of groups of channels.
    """
    size = kernel.shape[:-2]
    cut = windows(pad(x, pads), size, strides, dilation)
    axis = 1 + len(size)
    parts = np.split(cut, groups, axis=axis)
    filters = np.split(kernel, groups, axis=-1)
    space = list(range(axis + 1, axis + 1 + len(size)))
    made = [
        np.tensordot(part, each, axes=([*space, axis], [*range(len(size)), len(size)]))
        for part, each in zip(parts, filters, strict=True)
    ]
    return np.concatenate(made, axis=-1)


def same_pads(space: Sequence[int], reach: Sequence[int], strides: Sequence[int]) -> list[tuple[int, int]]:
    """Returns TensorFlow's SAME padding, which gives ceil(size / stride) positions and puts an odd element at the end.

    Args:
        space: The size of the inputs along each dim.
        reach: The reach of a window, with its dilation.
        strides: The strides from one window to the next.
    """
    total = [max((-(-n // s) - 1) * s + r - n, 0) for n, r, s in zip(space, reach, strides, strict=True)]
    return [(each // 2, each - each // 2) for each in total]


def attend(
    query: np.ndarray, key: np.ndarray, value: np.ndarray, scale: float, ahead: int | None, axis: int = -1
) -> np.ndarray:
    """Computes the attention of [batch, time, heads, size].

    Args:
        query: The queries.
        key: The keys.
        value: The values.
        scale: The factor of the products of queries and keys.
        ahead: The number of later positions that a position sees: 0 is causal, None sees all.
        axis: The axis of [batch, heads, queries, keys] over which the softmax is taken.
    """
    scores = np.einsum("bqhd,bkhd->bhqk", query, key) * scale
    if ahead is not None:
        rows, columns = np.indices(scores.shape[-2:])
        hidden = columns > rows + ahead
        hidden &= ~hidden.all(axis=-1, keepdims=True)  # a row that hides everything would be NaN
        scores = np.where(hidden, -np.inf, scores)
    return np.einsum("bhqk,bkhd->bqhd", softmax(scores, axis), value)
