"""How a parameter of torch becomes one of TensorFlow: what is transposed, reshaped, split, packed, reordered or summed.

Torch's arrays are given in the neutral layout, which is Keras': a kernel is [inputs, outputs], a filter [height, width,
inputs, outputs]. The changes are for layers that the two frameworks divide into different parameters.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import numpy as np

Arrays = Sequence[np.ndarray]
Shapes = Sequence[tuple[int, ...]]
Rearrange = Callable[[Arrays, Shapes], list[np.ndarray]]
"""(arrays of one side, shapes of the other side's) -> arrays of the other side."""

GATES = ("r, z, n", "z, r, n")
"""The gates of a GRU as torch and as Keras order them. Those of an LSTM are in the same order: i, f, g, o."""


@dataclasses.dataclass(frozen=True)
class Rearrangement:
    """A way to make TensorFlow's arrays from torch's.

    Attributes:
        words: Its description in a table; "" if the permutation says everything.
        make: (torch's arrays, TensorFlow's shapes) -> TensorFlow's arrays.
        undo: (TensorFlow's arrays, torch's shapes) -> torch's arrays, from which `make` makes the same arrays again.
        is_summed: Whether torch's arrays are summed, so the gradient of each equals that of the sum.
    """

    words: str
    make: Rearrange
    undo: Rearrange
    is_summed: bool = False


def _same(arrays: Arrays, shapes: Shapes) -> list[np.ndarray]:
    return [arrays[0]]


def _transpose(arrays: Arrays, shapes: Shapes) -> list[np.ndarray]:
    return [arrays[0].T]


def _reshape(arrays: Arrays, shapes: Shapes) -> list[np.ndarray]:
    return [arrays[0].reshape(shapes[0])]


def _split(arrays: Arrays, shapes: Shapes) -> list[np.ndarray]:
    parts = np.split(arrays[0], len(shapes), axis=-1)
    return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]


def _pack(arrays: Arrays, shapes: Shapes) -> list[np.ndarray]:
    rows = shapes[0][:-1]
    return [np.concatenate([each.reshape(*rows, -1) for each in arrays], axis=-1).reshape(shapes[0])]


def _swap_gates(array: np.ndarray) -> np.ndarray:
    """Exchanges the first two of a GRU's three gates; doing it twice changes nothing."""
    one, two, new = np.split(array, 3, axis=-1)
    return np.concatenate([two, one, new], axis=-1)


def _swap(arrays: Arrays, shapes: Shapes) -> list[np.ndarray]:
    return [_swap_gates(arrays[0])]


def _reverse_space(arrays: Arrays, shapes: Shapes) -> list[np.ndarray]:
    """Reverses all axes but the last two."""
    (array,) = arrays
    space = range(array.ndim - 2)
    return [array.transpose(*reversed(space), array.ndim - 2, array.ndim - 1)]


def _share_out(array: np.ndarray) -> list[np.ndarray]:
    """Returns two arrays that add up to the given one: the array itself and zeros."""
    return [array, np.zeros_like(array)]


CHANGES: Mapping[str, Rearrangement] = {
    "same": Rearrangement("", _same, _same),
    "native": Rearrangement("as it is", _transpose, _transpose),
    "flipped": Rearrangement("transposed", _same, _same),
    "reshaped": Rearrangement("reshaped", _reshape, _reshape),
    "space": Rearrangement("axes of space reversed", _reverse_space, _reverse_space),
    "channels": Rearrangement(
        "channels last",
        lambda arrays, _: [np.moveaxis(arrays[0], 0, -1)],
        lambda arrays, _: [np.moveaxis(arrays[0], -1, 0)],
    ),
    "exchanged": Rearrangement(
        "inputs exchanged",
        lambda arrays, shapes: [arrays[0].swapaxes(0, 1).reshape(shapes[0])],
        lambda arrays, shapes: [arrays[0].reshape(shapes[0][1], shapes[0][0], -1).swapaxes(0, 1)],
    ),
    "split": Rearrangement("split in {count}", _split, _pack),
    "packed": Rearrangement("packed", _pack, _split),
    "summed": Rearrangement(
        "summed", lambda arrays, _: [arrays[0] + arrays[1]], lambda arrays, _: _share_out(arrays[0]), is_summed=True
    ),
    "gates": Rearrangement(f"gates {GATES[0]} -> {GATES[1]}", _swap, _swap),
    "summed gates": Rearrangement(
        f"summed, gates {GATES[0]} -> {GATES[1]}",
        lambda arrays, _: [_swap_gates(arrays[0] + arrays[1])],
        lambda arrays, _: _share_out(_swap_gates(arrays[0])),
        is_summed=True,
    ),
    "stacked": Rearrangement(
        f"stacked, gates {GATES[0]} -> {GATES[1]}",
        lambda arrays, _: [np.stack([_swap_gates(each) for each in arrays])],
        lambda arrays, _: [_swap_gates(each) for each in arrays[0]],
    ),
}
"""The changes by name. "native" and "flipped" are the two ways to read a square kernel of an unknown layer."""
