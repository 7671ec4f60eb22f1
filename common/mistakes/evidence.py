"""What a cause is found from: the first step at which two recorded runs differ."""

import collections
import dataclasses
import math
import re
from collections.abc import Mapping, Sequence

import numpy as np

from samestep.common.steps import gradient_transforms


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
        bound: The most of it that a difference may have.
        before: The projections of the weights before the step.
        earlier: The projections of A's gradient a step before.
        strays: The projections of the gradients that steps before left there, which updated others, in A and in B.
        shape: The shape of the whole tensor.
        digits: The most binary digits behind the first that its numbers have in A, and in B; None where nobody knows.
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
    before: np.ndarray | None = None
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

    @property
    def left(self) -> float:
        """What that multiple leaves of B's, relative to it."""
        norm = length(self.other)
        return length(self.other - self.ratio * self.one) / norm if norm else 0.0

    def explained_by(self, ratio: float, added: np.ndarray | float = 0.0) -> bool:
        """Returns whether B's is a multiple of A's, but for rounding.

        Args:
            ratio: The multiple.
            added: What is added to it.
        """
        left = length(self.other - ratio * self.one - added)
        return left <= self.bound * max(1.0, abs(ratio)) * self.rounding if math.isfinite(left) else False


@dataclasses.dataclass(frozen=True, eq=False)
class Side:
    """One of the two runs, at the step that differs.

    Attributes:
        world: The number of processes.
        passes: The number of backward passes of the step.
        usual_passes: How many passes the steps before usually took.
        loss: The loss of the step.
        parts: The loss of each backward pass of each rank.
        rows: The hashes of each rank's examples; None if nobody knows them.
        scalars: The scalars of the step.
        rates: The learning rate of each step, of the whole run if hyper-parameters differ.
        digests: A hash of the examples of each step, until this one.
        is_seen_before: Whether most examples of this step were in steps before.
        splits: What ranks hold differently that should be the same: (phase, name of the tensor or scalar, ranks).
        targets: The multiset of the hashes of examples with their targets; None if nobody knows them.
        later: A hash of the examples of each step after this one, if the data differ.
        following: The multiset of the examples of the step after this one, likewise.
        only: The shapes of the parameters that the other run has not, by name.
        again: How many examples all steps together were given more often than those of the other run, which has them as well;
            None if nobody knows.
        alone: How many examples all steps were given that the other run does not have at all; None if nobody knows.
        repeated: How many examples came again within one pass through a DataLoader; None if nobody knows.
        distinct: At least how many different examples all steps were given.
        is_evaluated: Whether the model was in evaluation mode.
        begins_pass: Whether a pass through the data began in this step.
        written: How many tensors the script has changed since the last update; 0 where nobody knows.
        trained_alone: The names of the parameters that got a gradient and that the other run does not have.
        shares_layers: Whether its ranks hold parts of the same layers (tensor parallelism), so they need the same examples.
        earlier: The learning rates of the steps that it took before all of these, where the other one goes on after them.
    """

    world: int
    passes: int
    usual_passes: int
    loss: float | None
    parts: tuple[float, ...]
    rows: Mapping[int, tuple[int, ...]] | None
    scalars: Mapping[str, float]
    rates: Sequence[float]
    digests: Sequence[int | None]
    is_seen_before: bool
    splits: Sequence[tuple[str, str, tuple[int, ...]]]
    targets: collections.Counter[int] | None = None
    later: Sequence[int | None] = ()
    following: collections.Counter[int] | None = None
    only: Mapping[str, tuple[int, ...]] = dataclasses.field(default_factory=dict)
    again: int | None = None
    alone: int | None = None
    repeated: int | None = None
    distinct: int = 0
    is_evaluated: bool = False
    begins_pass: bool = False
    written: int = 0
    trained_alone: tuple[str, ...] = ()
    shares_layers: bool = False
    earlier: tuple[float, ...] = ()

    @property
    def examples(self) -> collections.Counter[int]:
        """The multiset of the examples of all ranks, each rank's counted."""
        return collections.Counter(row for rows in (self.rows or {}).values() for row in rows)

    @property
    def factor(self) -> float:
        """What the gradient was multiplied by between the backward pass and the update."""
        return gradient_transforms.factor(self.scalars)


@dataclasses.dataclass(frozen=True, eq=False)
class Evidence:
    """What two runs did at the first step at which they differ.

    Attributes:
        phase: The first that differs: "data", "targets", "hyper-parameters", "initial weights", "loss", "gradient", "clipping",
            "update" or "replicas".
        step: Its number.
        a: The one run.
        b: The other.
        gradients: The gradients of each tensor that has one; empty where the step was not looked at.
        moves: The moves of each tensor, what the update added to it.
        moved: How far each was from its start at the last pass of the step; empty if no script has moved any.
        updates: The moves of each until a script wrote it; empty if none did, or nobody knows.
        writes: What scripts then added to them.
    """

    phase: str
    step: int
    a: Side
    b: Side
    gradients: Sequence[SeenTensor] = ()
    moves: Sequence[SeenTensor] = ()
    moved: Sequence[SeenTensor] = ()
    updates: Sequence[SeenTensor] = ()
    writes: Sequence[SeenTensor] = ()

    def swapped(self) -> "Evidence":
        """Returns the same with A and B in each other's place."""
        every = self.gradients, self.moves, self.moved, self.updates, self.writes
        return Evidence(self.phase, self.step, self.b, self.a, *(tuple(map(_swapped, seen)) for seen in every))

    @property
    def is_transformed(self) -> bool:
        """Whether one of the two runs may have changed the norm of its gradient before the update."""
        return any(gradient_transforms.is_transformed(side.scalars) for side in (self.a, self.b))

    @property
    def loss_ratio(self) -> float | None:
        """B's loss over A's."""
        return self.b.loss / self.a.loss if self.a.loss and self.b.loss is not None else None


def _swapped(seen: SeenTensor) -> SeenTensor:
    strays, digits, norms = (each and each[::-1] for each in (seen.strays, seen.digits, seen.norms))
    return dataclasses.replace(seen, one=seen.other, other=seen.one, strays=strays, digits=digits, norms=norms)


def length(projections: np.ndarray) -> float:
    """Returns the estimated norm of what was projected."""
    with np.errstate(invalid="ignore", over="ignore"):
        return math.sqrt(float(np.mean(projections * projections)))


def digits_of(bits: int, dtype: str) -> int | None:
    """Returns the most binary digits behind the first that numbers have, by the sum of their bits.

    Digits that all numbers lack are zeros at the end of the sum. By chance, one in two sums has one such zero.

    Args:
        bits: The sum, of words of 32 bits.
        dtype: The dtype of the numbers.
    """
    in_a_word = {"float32": 23, "float64": 20}.get(dtype)
    if in_a_word is None or not bits:
        return None
    return max(0, in_a_word - ((bits & -bits).bit_length() - 1))


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


def common_ratio(seen: Sequence[SeenTensor]) -> float | None:
    """Returns the one ratio that explains every tensor within rounding; None if there is none."""
    finite = [each for each in seen if math.isfinite(each.ratio) and each.norm > each.rounding * each.bound]
    if not finite:
        return None
    weights = [min(each.norm / each.rounding if each.rounding else 1e12, 1e12) for each in finite]
    ratio = sum(w * each.ratio for w, each in zip(weights, finite, strict=True)) / sum(weights)
    return ratio if all(each.explained_by(ratio) for each in seen) else None
