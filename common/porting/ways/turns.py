"""Programs of one step that turn one side's array into the other's: where nobody knows how either was made."""

from collections.abc import Callable, Iterator

import numpy as np

from samestep.common.porting.array_layouts import Both, apart
from samestep.common.porting.ways.identify import SAME
from samestep.common.porting.ways.programs import axis_name, where_hidden

_DIGITS = 6
_Turn = Callable[[np.ndarray, np.ndarray], Iterator[str]]


def turn(both: Both) -> str:
    """Returns how the source's array becomes the target's, in words; "" where no program of one step does it.

    Args:
        both: The source's array in the target's layout, and the target's.
    """
    one, other = (each.astype(np.float64) if each.dtype.kind in "if" else each for each in both)
    if one.dtype.kind != "f" or other.dtype.kind != "f" or one.size < 2 or apart(one, other) <= SAME:
        return ""
    return next((said for look in _TURNS for said in look(one, other)), "")


def _scaled(one: np.ndarray, other: np.ndarray) -> Iterator[str]:
    if one.shape != other.shape or not (one.any() and other.any()):
        return
    factor, shift = float(np.vdot(one, other) / np.vdot(one, one)), float((other - one).flat[0])
    if apart(one + shift, other) <= SAME:
        size, more = f"{abs(shift):.{_DIGITS}g}", "more" if shift > 0 else "less"
        yield f"each number is {size} {more} in {{b}} than in {{a}}"
    if apart(factor * one, other) <= SAME:
        yield f"{{b}}'s is {factor:.{_DIGITS}g} times {{a}}'s"


def _reordered(one: np.ndarray, other: np.ndarray) -> Iterator[str]:
    """The elements along one axis are in another order, each or in blocks."""
    for axis in range(one.ndim) if one.shape == other.shape else ():
        name, count = axis_name(axis, one.ndim), one.shape[axis]
        scale = max(np.abs(one).max(), 1e-300)
        for parts in (each for each in range(2, count + 1) if count % each == 0):
            rows, wanted = (np.moveaxis(each, axis, 0).reshape(parts, -1) for each in (one, other))
            order = [_place(row, rows, SAME * scale) for row in wanted]
            if sorted(order) == list(range(parts)):
                yield f"along {name}, {_order(order, count // parts)}"
            elif (said := _shifted(order)) and len({*order} - {-1}) > parts // 2:
                yield f"along {name}, {said}"


def _place(row: np.ndarray, rows: np.ndarray, bound: float) -> int:
    at = np.flatnonzero(np.abs(rows - row).max(axis=1) <= bound)
    return int(at[0]) if len(at) else -1


def _order(order: list[int], size: int) -> str:
    count, first = len(order), order[0]
    if order == list(reversed(range(count))):
        return "{b} has everything in reverse order"
    if order == [(place + first) % count for place in range(count)]:
        ends = f"the last {(count - first) * size} before the first {first * size}"
        return f"{{b}} has {ends}: parts are put together in the other order"
    for parts in range(2, count):
        if count % parts == 0 and order == np.arange(count).reshape(parts, -1).T.ravel().tolist():
            return f"{{b}} interleaves {parts} parts that {{a}} puts one after the other"
    return "{b} has the same in another order"


def _shifted(order: list[int]) -> str:
    """Returns by how much what is there has moved, where something fell out at an end."""
    moves = {place - at for place, at in enumerate(order) if at >= 0}
    if len(moves) != 1 or moves == {0}:
        return ""
    (by,) = moves
    return f"{{b}}'s is shifted by {abs(by)} {'forward' if by > 0 else 'back'}"


def _masked(one: np.ndarray, other: np.ndarray) -> Iterator[str]:
    if one.shape != other.shape:
        return
    with np.errstate(invalid="ignore"):
        hidden = ~(np.abs(one - other) <= SAME * max(np.abs(one[np.isfinite(one)]).max(initial=0.0), 1e-300))
    for lost, who in ((other, "{b}"), (one, "{a}")):
        if hidden.any() and not hidden.all() and not lost[hidden].any():
            yield f"{who} hides {where_hidden(hidden)}"


def _permuted(one: np.ndarray, other: np.ndarray) -> Iterator[str]:
    if one.ndim == 3 and one.shape == other.shape and one.size == other.size:
        for parts in (each for each in range(2, one.shape[-1]) if one.shape[-1] % each == 0):
            whole = one.reshape(*one.shape[:2], parts, -1)
            if apart(whole.transpose(0, 2, 1, 3).reshape(one.shape), other) <= SAME:
                yield f"the {parts} heads are not transposed back in {{b}}"
            split = other.reshape(*one.shape[:2], parts, -1)
            if apart(split.transpose(0, 2, 1, 3).reshape(one.shape), one) <= SAME:
                yield f"the {parts} heads are not transposed back in {{a}}"
    if one.ndim > 1 and one.shape == other.shape:
        for axis in range(1, one.ndim - 1):
            if one.shape[axis] == one.shape[-1] and apart(one.swapaxes(axis, -1), other) <= SAME:
                yield f"{axis_name(axis, one.ndim)} and {axis_name(one.ndim - 1, one.ndim)} are exchanged in {{b}}"


_TURNS: tuple[_Turn, ...] = (_scaled, _reordered, _permuted, _masked)
