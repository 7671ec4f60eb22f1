"""How a parameter of torch becomes one of TensorFlow: what is transposed, reshaped, split, packed, reordered or summed.

The arrays of torch come in the neutral layout, in which a kernel is [inputs, outputs] and a filter [height, width, inputs,
outputs]: Keras' own. What is left are the layers that the two frameworks hold in different pieces.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import numpy as np

Arrays = Sequence[np.ndarray]
Shapes = Sequence[tuple[int, ...]]

GATES = ("r, z, n", "z, r, n")
"""The gates of a GRU as torch and as Keras order them. Those of an LSTM are in the same order: i, f, g, o."""


@dataclasses.dataclass(frozen=True)
class Rearrangement:
    """One way from torch's arrays to TensorFlow's.

    Attributes:
        words: What a table says of it; "" where the permutation says it all.
        make: (torch's arrays, TensorFlow's shapes) -> TensorFlow's arrays.
        is_summed: Whether torch's arrays are summed, so that each of their gradients is that of the sum.
    """

    words: str
    make: Callable[[Arrays, Shapes], list[np.ndarray]]
    is_summed: bool = False


def _split(arrays: Arrays, shapes: Shapes) -> list[np.ndarray]:
    parts = np.split(arrays[0], len(shapes), axis=-1)
    return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]


def _swap_gates(array: np.ndarray) -> np.ndarray:
    reset, update, new = np.split(array, 3, axis=-1)
    return np.concatenate([update, reset, new], axis=-1)


def _reverse_space(array: np.ndarray) -> np.ndarray:
    """Reverses all axes but the last two."""
    space = range(array.ndim - 2)
    return array.transpose(*reversed(space), array.ndim - 2, array.ndim - 1)


CHANGES: Mapping[str, Rearrangement] = {
    "same": Rearrangement("", lambda arrays, shapes: [arrays[0]]),
    "native": Rearrangement("as it is", lambda arrays, shapes: [arrays[0].T]),
    "flipped": Rearrangement("transposed", lambda arrays, shapes: [arrays[0]]),
    "reshaped": Rearrangement("reshaped", lambda arrays, shapes: [arrays[0].reshape(shapes[0])]),
    "space": Rearrangement("axes of space reversed", lambda arrays, shapes: [_reverse_space(arrays[0])]),
    "split": Rearrangement("split in {count}", _split),
    "packed": Rearrangement(
        "packed", lambda arrays, shapes: [np.concatenate(list(arrays), axis=-1).reshape(shapes[0])]
    ),
    "summed": Rearrangement("summed", lambda arrays, shapes: [arrays[0] + arrays[1]], is_summed=True),
    "gates": Rearrangement(f"gates {GATES[0]} -> {GATES[1]}", lambda arrays, shapes: [_swap_gates(arrays[0])]),
    "summed gates": Rearrangement(
        f"summed, gates {GATES[0]} -> {GATES[1]}",
        lambda arrays, shapes: [_swap_gates(arrays[0] + arrays[1])],
        is_summed=True,
    ),
    "stacked": Rearrangement(
        f"stacked, gates {GATES[0]} -> {GATES[1]}", lambda arrays, shapes: [np.stack([_swap_gates(a) for a in arrays])]
    ),
}
"""By name. "native" and "flipped" are the two ways to read a square kernel whose layer nobody knows."""
