"""Where one side of a layer returns more than the other: all positions, not the last alone, or a border that is cut off later.

What is left out is no difference by itself. Whether it matters shows in the layers after it.
"""

from collections.abc import Callable, Iterator

import numpy as np

from samestep.common.porting.array_layouts import Both, apart

Trim = Callable[[Both], Both]
"""Cuts the arrays of both sides, or their gradients, to what both have."""
_Part = Callable[[np.ndarray], np.ndarray]
_SAME = 1e-7


def find_trim(family: str, one: np.ndarray, other: np.ndarray) -> Trim:
    """Returns what cuts the larger of two results to the part that the smaller one is; where it is none, nothing is cut.

    Of a recurrent layer that returns all positions on one side, the last is taken even where it differs.

    Args:
        family: What the layers are.
        one: Torch's result, in TensorFlow's layout.
        other: TensorFlow's.
    """
    if one.shape == other.shape or one.ndim < 2 or other.ndim < 2:
        return lambda both: both
    larger = 0 if one.size > other.size else 1
    whole, part = (one, other) if larger == 0 else (other, one)
    choices = list(_parts(family, whole, part.shape))
    fitting = [each for each in choices if apart(each(whole), part) <= _SAME]
    if not fitting and family != "recurrent":
        return lambda both: both
    chosen = next(iter((*fitting, *choices)), None)
    if chosen is None:
        return lambda both: both
    return lambda both: (chosen(both[0]), both[1]) if larger == 0 else (both[0], chosen(both[1]))


def _parts(family: str, whole: np.ndarray, shape: tuple[int, ...]) -> Iterator[_Part]:
    """Yields what may be a part of that shape: one place along an axis, or some in a row."""
    if family == "recurrent" and whole.ndim == 3 and shape == (len(whole), whole.shape[-1]):
        half = whole.shape[-1] // 2
        yield lambda x: x[:, -1]
        yield lambda x: np.concatenate([x[:, -1, :half], x[:, 0, half:]], axis=-1)  # where both directions end
    for axis in range(1, whole.ndim):
        rest = whole.shape[:axis] + whole.shape[axis + 1 :]
        if rest == shape:
            yield lambda x, axis=axis: np.take(x, -1, axis)  # type: ignore[misc]
            yield lambda x, axis=axis: np.take(x, 0, axis)  # type: ignore[misc]
        same = len(shape) == whole.ndim and rest == shape[:axis] + shape[axis + 1 :] and shape[axis] < whole.shape[axis]
        for start in range(whole.shape[axis] - shape[axis] + 1) if same else ():
            places = range(start, start + shape[axis])
            yield lambda x, axis=axis, places=places: np.take(x, places, axis)  # type: ignore[misc]
