"""A tensor at the step at which two recorded runs differ: its values in both runs, and tests of what explains the difference."""

import dataclasses
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from samestep.common.steps.projections import PROJECTIONS

LEFT = 0.5
"""The largest share of a difference beyond rounding that an explanation may leave. The worst pairs that are the same reach 3.68
times rounding, and real differences exceed ten times rounding, so less than 0.37 of an explained difference is left."""
PROOF = 14.0
"""The logarithm of the likelihood ratio above which moves count as whole multiples of the learning rate; by chance, that happens
once in a million cases."""
_AGAINST = -7.0
"""The logarithm below which a single tensor shows that its moves are no such multiples."""
_OUTLIERS = 0.1
"""The share of projections that are not whole numbers for another reason, e.g. a gradient that is nearly zero."""
_SCALES = (5.0, 1.0, 0.2, 0.03)
"""Factors on the estimated shift of a projection by rounding and epsilon: the estimate is a guess, and rather high."""
_FEW, _SHORT = 4, 0.5
"""Projections of fewer numbers, or with a smaller mean square, are close to whole numbers anyway."""


@dataclasses.dataclass(frozen=True, eq=False)
class SeenTensor:
    """A tensor at the step that differs, in both runs.

    Attributes:
        name: The name of the tensor.
        kind: "norm", "table", "bias" or "kernel".
        role: "parameter", "buffer", or the role of followers.
        size: The number of its elements.
        one: The projections of its gradient in A, or of its move if the update is compared.
        other: The same projections in B.
        rounding: The norm of the difference that rounding makes.
        bound: The largest multiple of that norm that a difference by rounding may be.
        before: The projections of the weights before the step; zeros if they are not known.
        earlier: The projections of A's gradient one step before.
        strays: The projections of the gradients, in A and in B, that earlier steps left on it while they updated other
            parameters.
        shape: The shape of the whole tensor.
        digits: The most binary digits after the first that its numbers have in A and in B; None if unknown.
        norms: The norms of its gradient in A and in B, computed from all of its numbers.
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
        """Whether the two runs differ by more than rounding."""
        return not self.explained_by(1.0)

    @property
    def off(self) -> float:
        """The norm of the difference, relative to the norm in A."""
        return length(self.other - self.one) / self.norm if self.norm else math.inf

    @property
    def ratio(self) -> float:
        """The ratio of B to A, by least squares."""
        square = float(self.one @ self.one)
        return float(self.one @ self.other) / square if square else math.nan

    def explained_by(self, ratio: float, added: np.ndarray | float = 0.0) -> bool:
        """Returns whether B's tensor is a multiple of A's plus an addend, up to rounding.

        Args:
            ratio: The multiple.
            added: The addend.
        """
        left = length(self.other - ratio * self.one - added)
        return left <= self.bound * max(1.0, abs(ratio)) * self.rounding if math.isfinite(left) else False

    def made_by(self, added: np.ndarray, ratio: float = 1.0, larger: float = 1.0) -> bool:
        """Returns whether B's tensor is a multiple of A's plus an addend that makes up most of the difference.

        Args:
            added: The addend.
            ratio: The multiple; if it is 0, the addend must make up most of B's tensor as well.
            larger: How many times as much rounding B's tensor may have as A's.
        """
        left, apart = length(self.other - ratio * self.one - added), length(self.other - self.one)
        is_most = not self.differs or left <= LEFT * (apart if ratio else min(apart, length(added)))
        return is_most and left <= self.bound * larger * self.rounding

    def swapped(self) -> "SeenTensor":
        """Returns the same tensor with A and B exchanged."""
        strays, digits, norms = (each and each[::-1] for each in (self.strays, self.digits, self.norms))
        return dataclasses.replace(self, one=self.other, other=self.one, strays=strays, digits=digits, norms=norms)


def parameters(seen: Iterable[SeenTensor]) -> list[SeenTensor]:
    """Returns the tensors that are parameters."""
    return [each for each in seen if each.role == "parameter"]


def differing(seen: Iterable[SeenTensor]) -> list[SeenTensor]:
    """Returns the tensors that differ by more than rounding."""
    return [each for each in seen if each.differs]


def length(projections: np.ndarray) -> float:
    """Returns the estimated norm of the tensor that was projected."""
    with np.errstate(invalid="ignore", over="ignore"):
        return math.sqrt(float(np.mean(projections * projections)))


def common_ratio(seen: Sequence[SeenTensor]) -> float | None:
    """Returns the ratio that explains every tensor within rounding; None if there is none."""
    finite = [each for each in seen if math.isfinite(each.ratio) and each.norm > each.rounding * each.bound]
    if not finite:
        return None
    ratio = weighted_mean([each.ratio for each in finite], [(each.norm, each.rounding) for each in finite])
    return ratio if all(each.explained_by(ratio) for each in seen) else None


def weighted_mean(fits: Sequence[float], sizes: Sequence[tuple[float, float]]) -> float:
    """Returns the mean of a number that was fitted to each tensor, weighted by the ratio of its norm to that of its rounding.

    Args:
        fits: The number that was fitted to each tensor.
        sizes: The norm of the data of each fit, and that of its rounding.
    """
    weights = [min(norm / rounding, 1e12) if rounding else 1e12 for norm, rounding in sizes]
    return sum(weight * fit for weight, fit in zip(weights, fits, strict=True)) / sum(weights)


def like_signs(
    seen: Sequence[tuple[SeenTensor, SeenTensor]],
    of: str,
    groups: Sequence[Mapping[str, float]],
    first: tuple[float, float],
) -> float:
    """Returns the log-likelihood ratio of moves that are multiples of the gradients' signs over any other moves.

    The projections of signs are whole numbers. Those of other moves are close to whole numbers only by chance: the result then
    exceeds x with a probability of at most exp(-x), since the alternatives for a tensor are averaged rather than selected.

    Args:
        seen: The pairs of a move and its gradient.
        of: "one" for A's moves, "other" for B's.
        groups: The hyper-parameters of each group of parameters.
        first: By how many learning rates a sign moves a number, and the size of a gradient that moves it half as far.
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
    """Yields the log-likelihood ratio of a move for each group that the tensor may be in, with and without weight decay."""
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
    """Returns by how many learning rates epsilon moves a projection in Adam's first step, for normally distributed gradients.

    Args:
        gradient: The gradient.
        epsilon: The size of a gradient that moves a number half as far as a large one.
    """
    norm = length(gradient.other)
    return math.sqrt(0.8 * gradient.size**1.5 * epsilon / norm) if norm else math.inf


def _near_whole(numbers: np.ndarray, deviation: float) -> float:
    """Returns the log-likelihood ratio of numbers that are whole up to a deviation over any other numbers."""
    if float(np.mean(numbers**2)) < _SHORT or not deviation < 1:
        return 0.0
    deviation = max(deviation, 0.01)
    off = (numbers - np.round(numbers))[:, None] + np.arange(-3, 4)
    density = np.exp(-((off / deviation) ** 2) / 2).sum(1) / (deviation * math.sqrt(2 * math.pi))
    return float(np.log(_OUTLIERS + (1 - _OUTLIERS) * density).sum())


def kind_of(name: str, layer: str, shape: Sequence[int]) -> str:
    """Returns what a model uses a tensor for: "norm", "table", "bias" or "kernel".

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
