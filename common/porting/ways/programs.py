"""Small programs that make one array from others: what may be between two layers, one step after another."""

import functools
import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from samestep.common.porting.array_layouts import hidden as hidden_by_mask
from samestep.common.porting.ways import formulas
from samestep.common.porting.ways.identify import Candidate

Named = Sequence[tuple[str, np.ndarray]]
"""The available arrays and their names, the nearest first."""
_NEAR = 6
_DIGITS = 6
_LEAST = 1e-9


def programs(sources: Named, target: np.ndarray) -> Iterator[Candidate]:
    """Yields the programs of one step that may have made an array.

    Args:
        sources: The available arrays.
        target: The array that was made.
    """
    for make in _STEPS:
        yield from make(sources, target)


def axis_name(axis: int, dims: int) -> str:
    """Returns the name of an axis.

    Args:
        axis: The number of the axis.
        dims: The number of axes.
    """
    return "the last axis" if axis == dims - 1 else "the batch" if axis == 0 else f"axis {axis}"


def _softmaxes(sources: Named, target: np.ndarray) -> Iterator[Candidate]:
    for _, x in _alike(sources, target):
        for axis in reversed(range(x.ndim)):
            name = _axis_beside_ones(axis, x)
            yield {"softmax": name}, lambda x=x, axis=axis: formulas.softmax(x, axis)
            yield {"softmax": f"{name}, its logarithm"}, lambda x=x, axis=axis: np.log(formulas.softmax(x, axis))
    for _, x in sources:  # for any other axis, Keras first moves it to the end
        for axis in range(1, x.ndim - 1):
            if (turned := x.swapaxes(axis, -1)).shape == target.shape:
                yield {"softmax": _axis_beside_ones(axis, x)}, lambda x=turned: formulas.softmax(x)


def _axis_beside_ones(axis: int, x: np.ndarray) -> str:
    """Returns the name of an axis. Axis 1 of [4, 6, 1] is called the last, as the other side may have squeezed its array."""
    return axis_name(axis, max((n + 1 for n, size in enumerate(x.shape) if size != 1), default=x.ndim))


def _reductions(sources: Named, target: np.ndarray) -> Iterator[Candidate]:
    hows = {"mean": np.mean, "maximum": np.max, "sum": np.sum, "minimum": np.min, "standard deviation": np.std}
    for _, x in sources[: 2 * _NEAR]:
        for count in range(1, x.ndim):
            for axes in itertools.combinations(range(x.ndim), count):
                kept = [size for axis, size in enumerate(x.shape) if axis not in axes]
                if [size for size in target.shape if size != 1] != [size for size in kept if size != 1]:
                    continue
                over = " and ".join(axis_name(axis, x.ndim) for axis in axes)
                for name, function in hows.items():
                    settings = {"pools": name, "over": over}
                    yield settings, lambda f=function, x=x, axes=axes: f(x, axis=axes).reshape(target.shape)
                if count == 1:
                    for name, place in (("first position", 0), ("last position", -1)):
                        taken = functools.partial(np.take, x, place, axis=axes[0])
                        yield {"pools": name, "over": over}, lambda taken=taken: taken().reshape(target.shape)


def _sums(sources: Named, target: np.ndarray) -> Iterator[Candidate]:
    """Yields sums of multiples of up to three arrays, such as residuals, positions and scales, with or without a constant."""
    fitting = [(name, x) for name, x in sources if _spreads(x, target)][: 2 * _NEAR]
    for count in (1, 2, 3):
        for chosen in itertools.combinations(fitting[: 2 * _NEAR if count < 3 else _NEAR], count):
            if all(x.shape != target.shape for _, x in chosen):
                continue
            columns = [np.broadcast_to(x, target.shape).ravel() for _, x in chosen]
            for has_constant in (False, True):
                matrix = np.stack([*columns, np.ones(target.size)] if has_constant else columns, axis=1)
                if (found := _solve(matrix, target)) is None:
                    continue
                factors = [float(f"{each:.{_DIGITS}g}") for each in found]
                if any(abs(each) < _LEAST for each in found):
                    continue  # it would be the same without that term
                terms = sorted(zip((name for name, _ in chosen), factors, strict=False))
                settings = {"sum": tuple(spell_term(*each) for each in terms)}
                settings |= {"constant": factors[count]} if has_constant else {}
                yield settings, lambda m=matrix, f=found: (m @ f).reshape(target.shape)


def spell_term(name: str, factor: float) -> str:
    """Spells a multiple of an array.

    Args:
        name: The name of the array.
        factor: The factor.
    """
    return name if factor == 1 else f"minus {name}" if factor == -1 else f"{factor:.{_DIGITS}g} times {name}"


def _solve(matrix: np.ndarray, target: np.ndarray) -> np.ndarray | None:
    """Fits a combination of columns to a few elements of the target; None if these are too few or it does not fit."""
    wanted = target.ravel()
    few = np.linspace(0, len(wanted) - 1, min(len(wanted), 64)).astype(int)
    if len(few) <= matrix.shape[1] or not (np.isfinite(matrix[few]).all() and np.isfinite(wanted[few]).all()):
        return None
    found, *_ = np.linalg.lstsq(matrix[few], wanted[few], rcond=1e-10)
    rest = np.abs(matrix[few] @ found - wanted[few]).max()
    return found if rest <= 1e-7 * max(np.abs(wanted[few]).max(), 1e-300) else None


def _products(sources: Named, target: np.ndarray) -> Iterator[Candidate]:
    near = sources[: 2 * _NEAR]
    for (first, x), (second, y) in itertools.combinations(near, 2):
        if x.shape == y.shape == target.shape:
            yield {"product": (first, second)}, lambda x=x, y=y: x * y
    for (first, x), (second, y) in itertools.permutations(near, 2):
        for name, function in formulas.ACTIVATIONS.items() if x.shape == y.shape == target.shape else ():
            if name != "none":
                yield {"product": (f"{name} of {first}", second)}, lambda f=function, x=x, y=y: f(x) * y
    for (first, x), (second, y) in itertools.permutations(near, 2):
        for turned in (False, True):
            other = y.swapaxes(-1, -2) if turned and y.ndim > 1 else y
            if x.ndim != y.ndim or x.ndim < 2 or x.shape[-1] != other.shape[-2] or x.shape[:-2] != y.shape[:-2]:
                continue
            if (*x.shape[:-1], other.shape[-1]) != target.shape:
                continue
            made = x @ other
            factor = float(np.vdot(made, target) / max(np.vdot(made, made), 1e-300))
            settings = {"matrix product": (first, second), "scale": float(f"{factor:.{_DIGITS}g}")}
            yield settings, lambda made=made, factor=factor: factor * made


def _concatenations(sources: Named, target: np.ndarray) -> Iterator[Candidate]:
    spread = [(name, made) for name, x in sources if (made := _for_each_example(x, target)) is not None]
    for count in (2, 3):
        for chosen in itertools.permutations(spread[: 2 * _NEAR], count):
            shapes = [x.shape for _, x in chosen]
            for axis in range(1, target.ndim):
                if sum(shape[axis] for shape in shapes) == target.shape[axis]:
                    settings = {"joined": tuple(name for name, _ in chosen), "along": axis_name(axis, target.ndim)}
                    yield settings, lambda c=chosen, a=axis: np.concatenate([x for _, x in c], axis=a)


def _for_each_example(x: np.ndarray, target: np.ndarray) -> np.ndarray | None:
    """Returns an array as it may be concatenated in a target, a parameter once for each example; None if it does not fit."""
    if x.ndim < target.ndim and x.ndim and x.dtype.kind == "f":
        x = np.broadcast_to(x, (len(target), *(1,) * (target.ndim - 1 - x.ndim), *x.shape))
    apart = [one != other for one, other in zip(x.shape, target.shape, strict=False)]
    return x if x.ndim == target.ndim and sum(apart) <= 1 and not apart[0] else None


def _hidings(sources: Named, target: np.ndarray) -> Iterator[Candidate]:
    """Yields the input with one constant in some places."""
    for _, x in _alike(sources, target):
        with np.errstate(invalid="ignore"):
            scale = np.abs(x).max()
            hidden = ~(np.abs(x - target) <= 1e-7 * scale)
        if not hidden.any() or hidden.all():
            continue
        values = target[hidden]
        is_low = bool((hidden_by_mask(target) == hidden).all())
        if is_low or len({*values[:64]}) == 1:
            settings = {"hides": where_hidden(hidden), "by": "zero" if not values.any() else "a large negative number"}
            kept = target if is_low else values[0]
            yield settings, lambda x=x, hidden=hidden, kept=kept: np.where(hidden, kept, x)


def where_hidden(hidden: np.ndarray) -> str:
    """Says which elements are hidden.

    Args:
        hidden: True for elements that are hidden.
    """
    if hidden.ndim > 2 and hidden.shape[-1] == hidden.shape[-2]:
        rows, columns = np.indices(hidden.shape[-2:])
        for ahead in (0, 1, -1):
            if (hidden == (columns > rows + ahead)).all():
                return {
                    0: "what comes after a position",
                    1: "what comes two positions later",
                    -1: "a position itself and what comes after it",
                }[ahead]
        for axis in (-1, -2):
            if (hidden == hidden.any(axis=-3 - axis, keepdims=True)).all():
                count = int(hidden.any(axis=-3 - axis).sum())
                return f"{count} places along {axis_name(hidden.ndim + axis, hidden.ndim)}"
    return f"{int(hidden.sum())} of {hidden.size} elements"


def _slices(sources: Named, target: np.ndarray) -> Iterator[Candidate]:
    for _, x in sources[: 2 * _NEAR]:
        apart = [axis for axis in range(x.ndim) if x.ndim == target.ndim and x.shape[axis] != target.shape[axis]]
        if len(apart) == 1 and target.shape[apart[0]] < x.shape[apart[0]]:
            (axis,) = apart
            for start in range(x.shape[axis] - target.shape[axis] + 1):
                stop = start + target.shape[axis]
                settings = {"takes": f"{start} to {stop - 1} of {x.shape[axis]}", "along": axis_name(axis, x.ndim)}
                yield settings, lambda x=x, a=axis, s=start, e=stop: np.take(x, range(s, e), axis=a)
            step = x.shape[axis] // target.shape[axis]
            for start in range(step) if step > 1 else ():
                places = range(start, x.shape[axis], step)
                settings = {"takes": f"one of {step} from number {start} on", "along": axis_name(axis, x.ndim)}
                yield settings, lambda x=x, a=axis, places=places: np.take(x, places, axis=a)


def _joinings(sources: Named, target: np.ndarray) -> Iterator[Candidate]:
    """Yields permutations of axes, followed by a reshape that may join or split them."""
    for _, x in sources[: 2 * _NEAR]:
        if x.size != target.size or not 3 <= x.ndim <= 5:
            continue
        for axes in itertools.permutations(range(x.ndim)):
            settings = {"axes": axes, "into": "joined" if target.ndim < x.ndim else "as they are"}
            yield settings, lambda x=x, axes=axes: x.transpose(axes).reshape(target.shape)


def _pixels(sources: Named, target: np.ndarray) -> Iterator[Candidate]:
    """Yields larger images whose pixels are the channels of a smaller one, in either of two orders."""
    for _, x in sources[: 2 * _NEAR]:
        if not x.ndim == target.ndim == 4 or x.size != target.size or not target.shape[-1] < x.shape[-1]:
            continue
        factor, channels = target.shape[1] // x.shape[1], target.shape[-1]
        for name, shape, axes in (
            ("a channel's pixels lie side by side", (channels, factor, factor), (0, 1, 4, 2, 5, 3)),
            ("a pixel's channels lie side by side", (factor, factor, channels), (0, 1, 3, 2, 4, 5)),
        ):
            split = x.reshape(*x.shape[:3], *shape)
            yield {"pixels of channels": name}, lambda x=split, axes=axes: x.transpose(axes).reshape(target.shape)


_STEPS = (_softmaxes, _reductions, _sums, _products, _concatenations, _hidings, _slices, _joinings, _pixels)
"""The kinds of programs, the likeliest first."""


def _alike(sources: Named, target: np.ndarray) -> Named:
    return [(name, x) for name, x in sources if x.shape == target.shape]


def _spreads(x: np.ndarray, target: np.ndarray) -> bool:
    """Returns whether an array has the shape of the target, or broadcasts over its first axes."""
    return x.dtype.kind == "f" and x.ndim > 0 and x.shape == target.shape[target.ndim - x.ndim :]
