"""The arrays of both frameworks in one layout, TensorFlow's, and how far they are apart."""

import numpy as np

from samestep.common.porting.families import OTHER, SPATIAL, family_of
from samestep.common.porting.model_trace import IS_FUNCTION, LayerCall

Both = tuple[np.ndarray, np.ndarray]
"""Torch's array in TensorFlow's layout, and TensorFlow's own."""
FLOAT32 = 1e-7
"""The relative deviation that constants rounded to float32 can cause: each is off by at most 2^-24."""
_BEYOND = 1e3
"""How many times as large as every visible element a number must be to count as added by a mask."""
_SPREAD = 1e-2
"""How far apart elements hidden by the same large number may be, relative to that number."""


def family(call: LayerCall) -> str:
    """Returns the family of a call in any framework; a function that a layer applies at its end is an activation."""
    if call.settings.get(IS_FUNCTION):
        return OTHER
    return "activation" if call.settings.get("is_activation") else family_of(call.kind)


def layouts(dims: int) -> list[tuple[int, ...]]:
    """Returns how axes may be permuted between the frameworks: not at all, channels to the end, or the first two exchanged."""
    axes = tuple(range(dims))
    return [axes, (0, *axes[2:], 1), (1, 0, *axes[2:])] if dims > 2 else [axes]


def find_axes(family: str, one: LayerCall, other: LayerCall) -> tuple[int, ...]:
    """Returns how the axes of torch's results are permuted to TensorFlow's.

    Args:
        family: The family of the calls.
        one: Torch's call.
        other: TensorFlow's call.
    """
    if family in SPATIAL and one.output.ndim > 2:
        return layouts(one.output.ndim)[other.settings.get("data_format") != "channels_first"]
    return nearest_layout(one.output, other.output)


def nearest_layout(array: np.ndarray, other: np.ndarray) -> tuple[int, ...]:
    """Returns the permutation that brings torch's array nearest to TensorFlow's; the identity if no layout has its shape.

    Args:
        array: Torch's array.
        other: TensorFlow's array.
    """
    first, *rest = layouts(array.ndim)
    fitting = [axes for axes in (first, *rest) if array.transpose(axes).shape == other.shape]
    return min(fitting or [first], key=lambda axes: apart(array.transpose(axes), other))


def turned(array: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    """Permutes the axes of an array; one that has another number of axes is returned unchanged.

    Args:
        array: The array.
        axes: The permutation.
    """
    return array.transpose(axes) if array.ndim == len(axes) else array


def without_border(array: np.ndarray) -> np.ndarray:
    """Returns an array without the zeros around it that a layer of padding put there.

    Args:
        array: [batch, *space, channels].
    """
    for axis in range(1, array.ndim - 1):
        held = np.flatnonzero(array.any(axis=tuple(other for other in range(array.ndim) if other != axis)))
        if len(held):
            array = np.take(array, range(held[0], held[-1] + 1), axis=axis)
    return array


def apart(one: np.ndarray, other: np.ndarray) -> float:
    """Returns the largest deviation of two arrays, relative to their largest element; infinite if shapes differ or NaNs occur.

    Args:
        one: An array.
        other: Another one.
    """
    if one.shape != other.shape:
        return np.inf
    if not one.size or np.array_equal(one, other):
        return 0.0
    scale = max(np.abs(one).max(), np.abs(other).max())
    with np.errstate(invalid="ignore", divide="ignore"):
        found = float(np.abs(one.astype(np.float64) - other).max() / scale)
    return found if np.isfinite(found) else np.inf


def is_same(one: np.ndarray, other: np.ndarray) -> bool:
    """Returns whether two arrays differ by no more than a constant in float32 explains.

    Args:
        one: An array.
        other: Another one.
    """
    return apart(one, other) <= FLOAT32


def has_same_numbers(one: np.ndarray, other: np.ndarray) -> bool:
    """Returns whether two arrays hold the same numbers, in any order and shape.

    Args:
        one: An array.
        other: Another one.
    """
    return is_same(np.sort(one, axis=None), np.sort(other, axis=None))


def without_steps(array: np.ndarray) -> np.ndarray:
    """Reduces an array to what a ReLU, a positive factor, a reshape or a permutation does not change.

    Dropout has the same effect before and after any of these.

    Args:
        array: The array.
    """
    positive = np.sort(np.maximum(array, 0.0), axis=None)
    return positive / max(float(positive.max(initial=0.0)), float(np.finfo(np.float64).tiny))


def hidden(array: np.ndarray) -> np.ndarray:
    """Returns which elements a mask hides: those that are not finite, and negative ones far larger in size than all others.

    Args:
        array: Scores of an attention, or anything.
    """
    lost = ~np.isfinite(array)
    if lost.all():
        return lost
    low = ~lost & (array < -_BEYOND * max(float(array[~lost].max()), 1.0))
    is_constant = low.any() and float(np.ptp(array[low])) <= _SPREAD * float(np.abs(array[low]).max())
    return lost | low if is_constant else lost


def apart_but_hidden(one: np.ndarray, other: np.ndarray) -> float:
    """Returns how far two arrays are apart where no mask hides them; infinite if they hide different elements.

    Args:
        one: An array.
        other: Another one.
    """
    if one.shape != other.shape or one.dtype.kind != "f" or other.dtype.kind != "f":
        return apart(one, other)
    masks = hidden(one), hidden(other)
    if not np.array_equal(*masks):
        return np.inf
    return apart(np.where(masks[0], 0.0, one), np.where(masks[1], 0.0, other)) if masks[0].any() else apart(one, other)


def squeezed(one: np.ndarray, other: np.ndarray) -> Both:
    """Returns both arrays, torch's in TensorFlow's shape if only dims of size one differ: torch keeps the dims that it pools.

    Args:
        one: Torch's array.
        other: TensorFlow's array.
    """
    is_same = one.shape != other.shape and one.squeeze().shape == other.squeeze().shape
    return (one.reshape(other.shape) if is_same else one), other
