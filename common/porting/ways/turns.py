"""Finds what turns one side's array into the other's, if it is not known how either was made."""

import dataclasses
from collections.abc import Callable, Iterator

import numpy as np

from samestep.common.porting.array_layouts import Both, apart
from samestep.common.porting.turning import Step
from samestep.common.porting.ways.fitted_activations import activations
from samestep.common.porting.ways.formulas import LIMITED, NumberedName
from samestep.common.porting.ways.identify import SAME
from samestep.common.porting.ways.programs import axis_name, where_hidden

_DIGITS = 6


@dataclasses.dataclass(frozen=True)
class Turn:
    """What turns the source's array into the target's.

    Attributes:
        said: The words of a message.
        name: The name by which it is accepted.
        steps: The operations that do it; () if they hold for these arrays only.
    """

    said: str
    name: str = ""
    steps: tuple[Step, ...] = ()


_Look = Callable[[np.ndarray, np.ndarray], Iterator[Turn]]


def turn(both: Both) -> Turn | None:
    """Returns how the source's array becomes the target's; None if no known operation does it.

    Args:
        both: The source's array in the target's layout, and the target's.
    """
    if all(each.dtype.kind == "i" and each.ndim > 1 for each in both) and apart(
        both[0].swapaxes(-1, -2), both[1]
    ) == 0 != apart(*both):
        return Turn("{b} counts from one position to another in the other direction")
    one, other = (each.astype(np.float64) if each.dtype.kind in "if" else each for each in both)
    if one.dtype.kind != "f" or other.dtype.kind != "f" or one.size < 2 or apart(one, other) <= SAME:
        return None
    return next((found for look in _TURNS for found in look(one, other)), None)


def _scaled(one: np.ndarray, other: np.ndarray) -> Iterator[Turn]:
    if one.shape != other.shape or not (one.any() and other.any()):
        return
    factor, shift = float(np.vdot(one, other) / np.vdot(one, one)), float((other - one).flat[0])
    if apart(one + shift, other) <= SAME:
        yield Turn(f"each number is {_more(shift)} in {{b}} than in {{a}}", "scale", (("plus", shift),))
    if apart(factor * one, other) <= SAME:
        yield Turn(f"{{b}}'s is {factor:.{_DIGITS}g} times {{a}}'s", "scale", (("times", factor),))


def _scaled_and_shifted(one: np.ndarray, other: np.ndarray) -> Iterator[Turn]:
    if one.shape == other.shape and one.std() > 0:
        factor = float(((one - one.mean()) * (other - other.mean())).mean() / one.var())
        shift = float(other.mean() - factor * one.mean())
        if factor and apart(factor * one + shift, other) <= SAME:
            said = f"{{b}}'s is {factor:.{_DIGITS}g} times {{a}}'s, and each number {_more(shift)}"
            yield Turn(said, "scale", (("times", factor), ("plus", shift)))


def _more(shift: float) -> str:
    return f"{abs(shift):.{_DIGITS}g} {'more' if shift > 0 else 'less'}"


def _activated(one: np.ndarray, other: np.ndarray) -> Iterator[Turn]:
    """Yields the activation that one side leaves out; after a ReLU, says which activation the other side has instead."""
    for before, after, lacks in ((one, other, "{a}"), (other, one, "{b}")):
        for name, function in activations(before, after):
            if name == "none" or apart(function(before), after) > SAME:
                continue
            if (rectified := _of_rectified(name)) and (before >= 0).all() and np.count_nonzero(before == 0) > 1:
                has = "{b}" if lacks == "{a}" else "{a}"
                yield Turn(f"{lacks}'s activation is relu, {has}'s {rectified}")
            else:
                yield Turn(f"the activation ({name}) is left out in {lacks}")


def _of_rectified(name: str) -> str:
    """Returns the kind of ReLU that equals this activation on inputs that have passed through a ReLU; "" if there is none."""
    name = {"hard tanh": NumberedName(LIMITED, 1)}.get(name, name)
    is_limited = isinstance(name, NumberedName) and name.kind == LIMITED
    return name if is_limited or name in ("relu6", "squared relu") else ""


def _scaled_in_part(one: np.ndarray, other: np.ndarray) -> Iterator[Turn]:
    """Yields a factor that applies to some of the places along an axis."""
    for axis in range(1, one.ndim) if one.shape == other.shape else ():
        rows = [np.moveaxis(each, axis, 0).reshape(one.shape[axis], -1) for each in (one, other)]
        factors = np.array([np.vdot(a, b) / max(np.vdot(a, a), 1e-300) for a, b in zip(*rows, strict=True)])
        is_fit = np.abs(rows[0] * factors[:, None] - rows[1]).max() <= SAME * max(np.abs(other).max(), 1e-300)
        near = np.abs(factors - 1) <= SAME
        if not is_fit or near.all() or not near.any() or np.ptp(factors[~near]) > SAME or not factors.all():
            continue
        places = np.flatnonzero(~near)
        if places[-1] - places[0] + 1 == len(places):
            which = f"{places[0]} to {places[-1]} of {len(near)}" if len(places) > 1 else f"number {places[0]}"
            said = f"{factors[places[0]]:.{_DIGITS}g} times {{a}}'s"
            verb = "are" if len(places) > 1 else "is"
            yield Turn(f"along {axis_name(axis, one.ndim)}, {{b}}'s {which} {verb} {said}")


def _reordered(one: np.ndarray, other: np.ndarray) -> Iterator[Turn]:
    """Yields another order of the elements along one axis, or of blocks of them."""
    for axis in range(one.ndim) if one.shape == other.shape else ():
        name, count = axis_name(axis, one.ndim), one.shape[axis]
        scale = max(np.abs(one).max(), 1e-300)
        for parts in (each for each in range(2, count + 1) if count % each == 0):
            rows, wanted = (np.moveaxis(each, axis, 0).reshape(parts, -1) for each in (one, other))
            order = [_place(row, rows, SAME * scale) for row in wanted]
            if sorted(order) == list(range(parts)):
                size = count // parts
                places = tuple(place * size + at for place in order for at in range(size))
                steps: tuple[Step, ...] = (("take", axis, places),)
                yield Turn(f"along {name}, {_order(order, size)}", "order", steps if axis else ())
            elif (said := _shifted(order)) and len({*order} - {-1}) > parts // 2:
                yield Turn(f"along {name}, {said}")


def _place(row: np.ndarray, rows: np.ndarray, bound: float) -> int:
    at = np.flatnonzero(np.abs(rows - row).max(axis=1) <= bound)
    return int(at[0]) if len(at) else -1


def _order(order: list[int], size: int) -> str:
    count, first = len(order), order[0]
    if order == list(reversed(range(count))) and size == 1:
        return "{b} has everything in reverse order"
    if order == [(place + first) % count for place in range(count)]:
        ends = f"the last {(count - first) * size} before the first {first * size}"
        return f"{{b}} has {ends}: parts are put together in the other order"
    for parts in range(2, count):
        if count % parts == 0 and order == np.arange(count).reshape(parts, -1).T.ravel().tolist():
            if parts > count // parts:
                return f"{{a}} interleaves {count // parts} parts that {{b}} puts one after the other"
            return f"{{b}} interleaves {parts} parts that {{a}} puts one after the other"
    if order == list(reversed(range(count))):
        return f"{{b}} has {count} parts in reverse order"
    return "{b} has the same in another order"


def _shifted(order: list[int]) -> str:
    """Says by how many places the elements are shifted, where some fell off an end; "" if that is not the same for all."""
    moves = {place - at for place, at in enumerate(order) if at >= 0}
    if len(moves) != 1 or moves == {0}:
        return ""
    (by,) = moves
    return f"{{b}}'s is shifted by {abs(by)} {'forward' if by > 0 else 'back'}"


def _masked(one: np.ndarray, other: np.ndarray) -> Iterator[Turn]:
    if one.shape != other.shape:
        return
    with np.errstate(invalid="ignore"):
        hidden = ~(np.abs(one - other) <= SAME * max(np.abs(one[np.isfinite(one)]).max(initial=0.0), 1e-300))
    for lost, who in ((other, "{b}"), (one, "{a}")):
        if hidden.any() and not hidden.all() and not lost[hidden].any():
            yield Turn(f"{who} hides {where_hidden(hidden)}")


def _permuted(one: np.ndarray, other: np.ndarray) -> Iterator[Turn]:
    if one.ndim == 3 and one.shape == other.shape and one.size == other.size:
        for parts in (each for each in range(2, one.shape[-1]) if one.shape[-1] % each == 0):
            for back, left, who, step in ((one, other, "{b}", "heads"), (other, one, "{a}", "heads back")):
                split = back.reshape(*one.shape[:2], parts, -1)
                if apart(split.transpose(0, 2, 1, 3).reshape(one.shape), left) <= SAME:
                    yield Turn(f"the {parts} heads are not transposed back in {who}", "order", ((step, parts),))
    if one.ndim > 1 and one.shape == other.shape:
        for axis in range(1, one.ndim - 1):
            if one.shape[axis] == one.shape[-1] and apart(one.swapaxes(axis, -1), other) <= SAME:
                said = f"{axis_name(axis, one.ndim)} and {axis_name(one.ndim - 1, one.ndim)} are exchanged in {{b}}"
                yield Turn(said, "order", (("swap", axis, one.ndim - 1),))


def _rearranged(one: np.ndarray, other: np.ndarray) -> Iterator[Turn]:
    """Yields that each example has the same numbers in another order."""
    if one.shape != other.shape or one.ndim < 2:
        return
    rows = [np.sort(each.reshape(len(each), -1), axis=1) for each in (one, other)]
    if apart(rows[0], rows[1]) <= SAME:
        yield Turn("{b} has the same numbers in another order")


_TURNS: tuple[_Look, ...] = (
    *(_scaled, _reordered, _permuted, _scaled_and_shifted, _activated, _scaled_in_part, _masked, _rearranged),
)
