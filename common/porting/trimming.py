"""Cuts what one side of a layer returns in excess: all positions instead of the last one, or a border that is cut off later.

What is cut does not count as a difference. Whether it matters shows in the layers after it.
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from samestep.common.porting.array_layouts import Both, apart, family, is_same
from samestep.common.porting.model_trace import LayerCall
from samestep.common.porting.ways.formulas import MERGES

Trim = Callable[[Both], Both]
"""Cuts the arrays of both sides, or their gradients, to what both have."""
_Part = Callable[[np.ndarray], np.ndarray]


def find_trim(family: str, one: np.ndarray, other: np.ndarray) -> Trim:
    """Returns the function that cuts the larger of two results to the smaller one; nothing if the smaller is no part of it.

    For a recurrent layer that returns all positions on one side, the nearest part is taken even if it differs.

    Args:
        family: The family of the layers.
        one: Torch's result, in TensorFlow's layout.
        other: TensorFlow's result.
    """
    chosen = None
    larger = 0 if one.size > other.size else 1
    if one.shape != other.shape and min(one.ndim, other.ndim) > 1:
        whole, part = (one, other) if larger == 0 else (other, one)
        choices = list(_parts(family, whole, part.shape))
        nearest = min(choices, key=lambda each: apart(each(whole), part), default=None)
        if nearest is not None and (family == "recurrent" or is_same(nearest(whole), part)):
            chosen = nearest
    if chosen is None:
        return lambda both: both
    return lambda both: (chosen(both[0]), both[1]) if larger == 0 else (both[0], chosen(both[1]))


def merged(calls: Sequence[LayerCall], place: int, other: LayerCall) -> LayerCall:
    """Returns a recurrent call with its two directions merged as in the model, if the other side's layer merges them itself.

    If a later call computes a merge, that is the model's merge. Otherwise it is the merge that gives the other side's
    result.

    Args:
        calls: The calls of one side.
        place: The place of the recurrent call.
        other: The call of the other side.
    """
    call = calls[place]
    if family(call) != "recurrent" or call.output.shape[-1] != 2 * other.output.shape[-1]:
        return call
    ways = [
        lambda x, merge=merge, split=split: merge(split(x))
        for merge in list(MERGES.values())[1:]
        for split in (_halves, _ends)
    ]
    fitting = [way for way in ways if way(call.output).shape == other.output.shape]
    later = [each.output for each in calls[place + 1 :] if each.output.shape == other.output.shape]
    own = [way for way in fitting if any(is_same(way(call.output), each) for each in later)]
    nearest = min(own or fitting, key=lambda way: apart(way(call.output), other.output), default=None)
    if nearest is None or (not own and not is_same(nearest(call.output), other.output)):
        return call
    evaluated = None if call.evaluated is None else nearest(call.evaluated)
    return dataclasses.replace(call, output=nearest(call.output), evaluated=evaluated, gradient=None)


def _halves(x: np.ndarray) -> list[np.ndarray]:
    return np.split(x, 2, axis=-1)


def _ends(x: np.ndarray) -> list[np.ndarray]:
    """Returns the last position of the forward direction and the first of the backward one."""
    forward, backward = _halves(x)
    return [forward[:, -1], backward[:, 0]] if x.ndim == 3 else [forward, backward]


def _parts(family: str, whole: np.ndarray, shape: tuple[int, ...]) -> Iterator[_Part]:
    """Yields functions that cut out a part of that shape: one place along an axis, or several consecutive ones."""
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
