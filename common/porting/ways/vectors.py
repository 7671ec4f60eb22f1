"""Steps that treat arrays as vectors along the last axis: similarities, rotations of pairs, and gates."""

import itertools
from collections.abc import Iterator

import numpy as np

from samestep.common.porting.ways import formulas
from samestep.common.porting.ways.identify import SAME, Candidate
from samestep.common.porting.ways.programs import Named

_NEAR = 12
"""The most available arrays that are examined, nearest first."""
_DIGITS = 6
"""The digits of an angle in a message."""


def vectors(sources: Named, target: np.ndarray) -> Iterator[Candidate]:
    """Yields the steps that may have made an array of vectors.

    Args:
        sources: The available arrays.
        target: The array that was made.
    """
    yield from _likenesses(sources[:_NEAR], target)
    yield from _rotations(sources[:_NEAR], target)
    yield from _gated(sources[:_NEAR], target)


def _likenesses(sources: Named, target: np.ndarray) -> Iterator[Candidate]:
    for (first, x), (second, y) in itertools.combinations(sources, 2):
        if x.shape != y.shape or x.ndim < 2 or x.size != target.size * x.shape[-1]:
            continue
        for name in ("dot product", "cosine"):

            def make(x: np.ndarray = x, y: np.ndarray = y, name: str = name) -> np.ndarray:
                norms = np.linalg.norm(x, axis=-1) * np.linalg.norm(y, axis=-1) if name == "cosine" else 1.0
                return ((x * y).sum(-1) / norms).reshape(target.shape)

            yield {"likeness": name, "of": (first, second)}, make


def _rotations(sources: Named, target: np.ndarray) -> Iterator[Candidate]:
    """Yields rotary position embeddings: the angles of the first example, applied to all examples."""
    shape, last = target.shape, target.shape[-2:]
    if target.ndim > 3 and last[-1] == 2:  # pairs that are not joined yet
        target = target.reshape(*shape[:-2], 2 * last[0])
    if target.ndim < 3 or target.shape[-1] % 2 or len(target) < 2:
        return
    for _, source in sources:
        for x in _heads(source, target.shape):
            for name, whole in _PAIRS.items():
                before, after = (whole(each) for each in (x, target))
                with np.errstate(invalid="ignore", divide="ignore"):
                    turn = after[0] / before[0]
                if np.isfinite(turn).all() and (np.abs(np.abs(turn) - 1) <= SAME).all():
                    angles = np.angle(turn).reshape(-1, turn.shape[-1])
                    row = angles[np.abs(angles).max(-1) > SAME][:1].ravel()
                    largest = row[np.abs(row).argmax()] if len(row) else 0.0  # small ones are uncertain
                    settings = {"turns": name, "angle": float(f"{largest:.{_DIGITS}g}")}
                    yield settings, lambda b=before, t=turn, name=name: _numbers(b * t, name).reshape(shape)


def _gated(sources: Named, target: np.ndarray) -> Iterator[Candidate]:
    """Yields gated units: one half of the numbers times an activation of the other half."""
    for _, x in sources:
        if x.ndim < 2 or x.shape != (*target.shape[:-1], 2 * target.shape[-1]):
            continue
        for what, (first, second) in (("half", np.split(x, 2, axis=-1)), ("of each two", (x[..., 0::2], x[..., 1::2]))):
            for name, function in formulas.ACTIVATIONS.items():
                gate = "" if name == "none" else f"the {name} of "
                for said, gated, by in (("first", first, second), ("second", second, first)):
                    other = "second" if said == "first" else "first"
                    settings = {"gated": f"the {said} {what} times {gate}the {other}"}
                    yield settings, lambda f=function, x=gated, y=by: x * f(y)


def _heads(x: np.ndarray, shape: tuple[int, ...]) -> Iterator[np.ndarray]:
    """Yields an array in the shape of a target; if that has heads, the array may have them before or after the positions."""
    if x.size == np.prod(shape) and x.dtype.kind == "f":
        yield x.reshape(shape)
        if len(shape) == 4:
            yield x.reshape(shape[0], shape[2], shape[1], shape[3]).swapaxes(1, 2)


def _halves(x: np.ndarray) -> np.ndarray:
    one, other = np.split(x, 2, axis=-1)
    return one + 1j * other


_PAIRS = {"halves": _halves, "neighbours": lambda x: x[..., 0::2] + 1j * x[..., 1::2]}
"""Which numbers of a vector are rotated together -> each pair as a complex number."""


def _numbers(pairs: np.ndarray, name: str) -> np.ndarray:
    parts = [pairs.real, pairs.imag]
    return np.concatenate(parts, -1) if name == "halves" else np.stack(parts, -1).reshape(*pairs.shape[:-1], -1)
