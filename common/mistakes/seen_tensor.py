"""A tensor at the step at which two recorded runs differ: its values in both, and what explains the difference."""

import dataclasses
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from samestep.common.steps.projections import PROJECTIONS

LEFT = 0.5
"""The largest share of a difference beyond rounding that an explanation may leave. The worst pairs that are the same have 3.68
times rounding, and what differs has more than ten times rounding, so less than 0.37 of an explained difference is left."""
PROOF = 14.0
"""The logarithm of a likelihood above which moves are whole multiples of the learning rate: one in a million others is by
chance."""
_AGAINST = -7.0
"""The logarithm below which a single tensor shows that its moves are not."""
_OUTLIERS = 0.1
"""The share of projections that are off a whole number for another reason, for example a gradient that is nearly zero."""
_SCALES = (5.0, 1.0, 0.2, 0.03)
"""Of what rounding and epsilon move a projection by: how many gradients are nearly zero is a guess, and bounds are high."""
_FEW, _SHORT = 4, 0.5
"""Projections of fewer numbers, or of a smaller mean square, are near whole numbers in any case."""


@dataclasses.dataclass(frozen=True, eq=False)
class SeenTensor:
    """A tensor at the step that differs, in both runs.

    Attributes:
        name: The name of the tensor.
        kind: "norm", "table", "bias" or "kernel".
        role: "parameter", "buffer", or that of a follower.
        size: How many numbers it has.
        one: The projections of its gradient in A; of its move if the update differs.
        other: Those in B.
        rounding: The norm of a difference that rounding makes.
        bound: The most times that norm that a difference may be.
        before: The projections of the weights before the step; zeros if they are not known.
        earlier: The projections of A's gradient a step before.
        strays: The projections of the gradients, in A and in B, that earlier steps for other parameters left there.
        shape: The shape of the whole tensor.
        digits: The most binary digits after the first that its numbers have in A and in B; None if not known.
        norms: The norms of its gradient, from all of its numbers, in A and in B.
    """

    name: str
    kind: str
    role: str
    size: int
    one: np.ndarray
    other: np.ndarray
    rounding: float
    bound: float
    before: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(PROJECTIONS))
    earlier: np.ndarray | None = None
    strays: tuple[np.ndarray, np.ndarray] | None = None
    shape: tuple[int, ...] = ()
    digits: tuple[int, int] | None = None
    norms: tuple[float, float] | None = None

    @property
    def norm(self) -> float:
        """The estimated norm in A."""
        return length(self.one)

    @property
    def differs(self) -> bool:
        """Whether the two differ by more than rounding."""
        return not self.explained_by(1.0)

    @property
    def off(self) -> float:
        """The norm of the difference, relative to that in A."""
        return length(self.other - self.one) / self.norm if self.norm else math.inf

    @property
    def ratio(self) -> float:
        """B's as a multiple of A's, by least squares."""
        square = float(self.one @ self.one)
        return float(self.one @ self.other) / square if square else math.nan

    def explained_by(self, ratio: float, added: np.ndarray | float = 0.0) -> bool:
        """Returns whether B's is a multiple of A's, up to rounding.

        Args:
            ratio: The multiple.
            added: What is added to it.
        """
        left = length(self.other - ratio * self.one - added)
        return left <= self.bound * max(1.0, abs(ratio)) * self.rounding if math.isfinite(left) else False

    def made_by(self, added: np.ndarray, ratio: float = 1.0, larger: float = 1.0) -> bool:
        """Returns whether B's is a multiple of A's plus something that makes up most of the difference.

        Args:
            added: What is added.
            ratio: The multiple; if it is 0, what is added has to make up most of B's as well.
            larger: How many times as much rounding B's may have as A's.
        """
        left, apart = length(self.other - ratio * self.one - added), length(self.other - self.one)
        is_most = not self.differs or left <= LEFT * (apart if ratio else min(apart, length(added)))
        return is_most and left <= self.bound * larger * self.rounding

    def swapped(self) -> "SeenTensor":
        """Returns the same with A and B in each other's place."""
        strays, digits, norms = (each and each[::-1] for each in (self.strays, self.digits, self.norms))
        return dataclasses.replace(self, one=self.other, other=self.one, strays=strays, digits=digits, norms=norms)


def parameters(seen: Iterable[SeenTensor]) -> list[SeenTensor]:
    """Returns the tensors that are parameters."""
    return [each for each in seen if each.role == "parameter"]


def differing(seen: Iterable[SeenTensor]) -> list[SeenTensor]:
    """Returns the tensors that differ."""
    return [each for each in seen if each.differs]


def length(projections: np.ndarray) -> float:
    """Returns the estimated norm of what was projected."""
    with np.errstate(invalid="ignore", over="ignore"):
        return math.sqrt(float(np.mean(projections * projections)))


def common_ratio(seen: Sequence[SeenTensor]) -> float | None:
    """Returns the one ratio that explains every tensor within rounding; None if there is none."""
    finite = [each for each in seen if math.isfinite(each.ratio) and each.norm > each.rounding * each.bound]
    if not finite:
        return None
    ratio = weighted_mean([each.ratio for each in finite], [(each.norm, each.rounding) for each in finite])
    return ratio if all(each.explained_by(ratio) for each in seen) else None


def weighted_mean(fits: Sequence[float], sizes: Sequence[tuple[float, float]]) -> float:
    """Returns the mean of what was fitted to each tensor, weighted by the ratio of its norm to that of its rounding.

    Args:
        fits: One for each tensor.
        sizes: The norm of what each was fitted to, and that of its rounding.
    """
    weights = [min(norm / rounding, 1e12) if rounding else 1e12 for norm, rounding in sizes]
    return sum(weight * fit for weight, fit in zip(weights, fits, strict=True)) / sum(weights)


def like_signs(
    seen: Sequence[tuple[SeenTensor, SeenTensor]],
    of: str,
    groups: Sequence[Mapping[str, float]],
    first: tuple[float, float],
) -> float:
    """Returns the logarithm of how much likelier it is that moves are multiples of the gradients' signs than any others.

    The projections of signs are whole numbers. Those of other moves are near one only by chance: the result then exceeds x with
    a probability of at most exp(-x), since the alternatives for a tensor are averaged and not chosen from.

    Args:
        seen: Each move with its gradient.
        of: "one" for A's moves, "other" for B's.
        groups: The hyper-parameters of each group of parameters.
        first: How many times the learning rate a sign moves a number, and the size of gradients that move it half as far.
    """
    total, slope = 0.0, 0.0
    for move, gradient in seen:
        found = [*_tried(move, gradient, getattr(move, of), groups, first)]
        best = max(found, default=-math.inf)
        if best == -math.inf:
            return -math.inf
        likely = best + math.log(sum(math.exp(each - best) for each in found) / len(found))
        if likely < _AGAINST:
            return -math.inf
        total += likely
        slope -= float(getattr(move, of) @ gradient.other) / (
            length(getattr(move, of)) * length(gradient.other) or math.inf
        )
    return total if slope > 0 else -math.inf


def _tried(
    move: SeenTensor,
    gradient: SeenTensor,
    moved: np.ndarray,
    groups: Sequence[Mapping[str, float]],
    first: tuple[float, float],
) -> Iterator[float]:
    """Yields how likely a move is, for each group that the tensor may be in, with weight decay and without."""
    factor, blur = first[0], blur_of(gradient, first[1])
    for group in groups:
        unit, decay = group.get("lr", 0.0) * factor, group.get("lr", 0.0) * group.get("weight_decay", 0.0)
        for taken in (decay, 0.0) if unit else ():
            signs = -(moved + taken * move.before) / unit
            is_long = length(signs) > 2 * math.sqrt(move.size)
            for scale in _SCALES:
                spread = scale * math.hypot(move.rounding / unit, blur)
                yield -math.inf if is_long else _near_whole(signs, spread) if move.size >= _FEW else 0.0


def blur_of(gradient: SeenTensor, epsilon: float) -> float:
    """Returns by how many learning rates epsilon moves a projection of Adam's first step, if gradients are normally distributed.

    Args:
        gradient: The gradient.
        epsilon: The size of a gradient that moves a number half as far as a large one.
    """
    norm = length(gradient.other)
    return math.sqrt(0.8 * gradient.size**1.5 * epsilon / norm) if norm else math.inf


def _near_whole(numbers: np.ndarray, deviation: float) -> float:
    """Returns the logarithm of how much likelier numbers are whole ones, but for a deviation, than any others."""
    if float(np.mean(numbers**2)) < _SHORT or not deviation < 1:
        return 0.0
    deviation = max(deviation, 0.01)
    off = (numbers - np.round(numbers))[:, None] + np.arange(-3, 4)
    density = np.exp(-((off / deviation) ** 2) / 2).sum(1) / (deviation * math.sqrt(2 * math.pi))
    return float(np.log(_OUTLIERS + (1 - _OUTLIERS) * density).sum())


def kind_of(name: str, layer: str, shape: Sequence[int]) -> str:
    """Returns what a model uses a tensor for.

    Args:
        name: The name of the tensor.
        layer: The type of the module that holds it.
        shape: The shape of the whole tensor.
    """
    if re.search(r"norm|(?:^|[._])(?:ln|bn)", f"{layer} {name}", re.IGNORECASE):
        return "norm"
    if re.search(r"embed", f"{layer} {name}", re.IGNORECASE):
        return "table"
    return "bias" if re.search(r"bias$", name) or len(shape) < 2 else "kernel"
