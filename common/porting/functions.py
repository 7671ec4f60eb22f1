"""Aligns the functions between the layers of two models: those that compute the same numbers.

One side may write a sum or a product differently, so neither order nor names show which functions belong together.
"""

import itertools
from collections.abc import Collection, Iterator, Sequence

import numpy as np

from samestep.common.porting.array_layouts import FLOAT32, apart_but_hidden, hidden
from samestep.common.porting.model_trace import LayerCall

FUNCTION = "function"
"""The family of calls that were aligned because they compute the same numbers."""
_MOST_DIMS = 5
_PARTS = ("getitem", "chunk", "split", "unbind", "stridedslice", "slice", "unpack", "gatherv2", "narrow", "select")
_MOVES = (
    *(*_PARTS, "reshape", "view", "transpose", "permute", "movedim", "swapaxes", "unflatten", "flatten", "squeeze"),
    *("unsqueeze", "expand", "expanddims", "pack", "identity"),
)


def moves(call: LayerCall) -> bool:
    """Returns whether a call returns numbers of its input unchanged, in other places."""
    return call.kind.lower() in _MOVES


def takes_part(call: LayerCall) -> bool:
    """Returns whether a call returns a part of its input."""
    return call.kind.lower() in _PARTS


def align_functions(
    source: Sequence[LayerCall], target: Sequence[LayerCall], taken: Collection[tuple[int, int]]
) -> Iterator[tuple[int, int, tuple[int, ...]]]:
    """Yields the places of functions that compute the same, and how the axes of the source's are permuted to the target's.

    Args:
        source: The calls of the source.
        target: The calls of the target.
        taken: The places of calls that are already aligned.
    """
    ours, theirs = ({pair[side] for pair in taken} for side in (0, 1))
    left = [(j, call, _print(call.output)) for j, call in enumerate(target) if j not in theirs]
    for i, call in enumerate(source):
        if i in ours or (print_ := _print(call.output)) is None:
            continue
        for j, other, other_print in left:
            axes = _axes(call.output, other.output) if _are_near(print_, other_print) else None
            if axes is not None:
                yield i, j, axes
                break


def _print(array: np.ndarray) -> tuple[int, float, float] | None:
    """Returns a fingerprint that arrays with the same numbers share; None if an array has too little in it to be recognized."""
    if array.dtype.kind != "f" or array.size < 2 or array.ndim > _MOST_DIMS or array.flat[0] == array.flat[-1]:
        return None
    finite = np.where(hidden(array), 0.0, array)
    return array.size, float(finite.sum()), float(np.abs(finite).sum())


def _are_near(one: tuple[int, float, float], other: tuple[int, float, float] | None) -> bool:
    if other is None or one[0] != other[0]:
        return False
    scale = max(one[2], other[2], 1e-300) * FLOAT32
    return abs(one[1] - other[1]) <= scale and abs(one[2] - other[2]) <= scale


def _axes(one: np.ndarray, other: np.ndarray) -> tuple[int, ...] | None:
    for axes in itertools.permutations(range(one.ndim)):
        if tuple(one.shape[axis] for axis in axes) == other.shape and same(one.transpose(axes), other):
            return axes
    return None


def same(one: np.ndarray, other: np.ndarray) -> bool:
    """Returns whether two arrays agree up to rounding and up to the values of elements that both hide.

    Args:
        one: An array.
        other: Another one.
    """
    return apart_but_hidden(one, other) <= FLOAT32
