"""A recorded script, with any number of processes, as one logical run."""

import collections
import dataclasses
import functools
import itertools
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

import numpy as np

from samestep.common.steps.argument_names import WHOLE
from samestep.common.steps.record import Phase, RecordedTensor, RecordHeader

OF_STAGE = re.compile(r"rank\d+\.")
"""The prefix of tensors of a later rank that differ from those of the same names on earlier ranks."""
_ORDER = 1e-4
"""The largest share of a norm by which the order of a sum in float32 changes a projection."""


@dataclasses.dataclass(frozen=True, eq=False)
class Sums:
    """What is recorded of all tensors in a phase, a row for each tensor of the run; NaN if a tensor has no gradient.

    Attributes:
        projections: float64 [tensors, PROJECTIONS].
        square: The squared norms, float64 [tensors].
        bits: The sums of bits, uint64 [tensors].
    """

    projections: np.ndarray
    square: np.ndarray
    bits: np.ndarray

    @property
    def norm(self) -> np.ndarray:
        """The norm of each tensor, float64 [tensors]."""
        return np.sqrt(self.square)

    def take(self, places: np.ndarray | slice) -> "Sums":
        """Returns the rows of some tensors.

        Args:
            places: The places of the tensors.
        """
        return Sums(self.projections[places], self.square[places], self.bits[places])

    def where(self, is_own: np.ndarray, other: "Sums") -> "Sums":
        """Returns these rows where a condition holds, and the rows of `other` elsewhere.

        Args:
            is_own: Whether the condition holds, bool [tensors].
            other: The sums of equally many tensors.
        """
        return Sums(
            np.where(is_own[:, None], self.projections, other.projections),
            np.where(is_own, self.square, other.square),
            np.where(is_own, self.bits, other.bits),
        )

    def are_as(self, other: "Sums") -> np.ndarray:
        """Returns which tensors hold the same numbers, allowing for projections that were added up in another order.

        Args:
            other: The sums of equally many tensors, or of one.
        """
        is_near = np.abs(self.projections - other.projections) <= _ORDER * other.norm[:, None]
        return (self.bits == other.bits) & is_near.all(axis=1)

    def unlike(self, other: "Sums", own: Sequence[int], places: Sequence[int]) -> tuple[int, float]:
        """Returns how many tensors have numbers on one side only, and how far apart the others are.

        Args:
            other: The sums of another run.
            own: The places of the tensors in these sums.
            places: The places of the same tensors in `other`.
        """
        apart = self.projections[own] - other.projections[places]
        is_alone = (self.square[own] > 0) != (other.square[places] > 0)
        return int(is_alone.sum()), float(np.nansum(apart * apart))


@dataclasses.dataclass(frozen=True)
class RankSplit:
    """Ranks that should hold the same numbers but do not.

    Attributes:
        phase: What differs: "skipped", "gradient", "weight" or "scalar".
        name: The name of the tensor or scalar.
        ranks: The ranks that differ from most others, or from the first if there is no majority.
    """

    phase: str
    name: str
    ranks: tuple[int, ...]


@dataclasses.dataclass(frozen=True, eq=False)
class RunStep:
    """One step of the whole run.

    Attributes:
        number: The number of the step, counted from 0; -1 is the frame of the initial weights.
        loss: The mean over ranks of each rank's sum of losses, counting only ranks with examples that no earlier rank has; None
            if no rank had a loss.
        rows: The hashes of each rank's examples; None if unknown.
        scalars: The scalars of the optimizer, each from the first rank that has it.
        is_skipped: Whether a gradient scaler skipped the update.
        passes: The number of backward passes of a rank.
        parts: The loss of each backward pass, for all ranks.
        sums: What was recorded of the tensors; None if the tensors of the step were not recorded.
        splits: Ranks that differ although they should not.
        targets: The hashes of each rank's examples with their targets; None if unknown.
        counts: As `RecordedStep.counts` of the first rank.
        class_weights: For each rank with a loss that has targets, a hash of the class weights; 0 if it has none.
        arguments: The arguments of each rank's examples, as in `RecordedStep.arguments`.
    """

    number: int
    loss: float | None = None
    rows: Mapping[int, tuple[int, ...]] | None = None
    scalars: Mapping[str, float] = dataclasses.field(default_factory=dict)
    is_skipped: bool = False
    passes: int = 1
    parts: tuple[float, ...] = ()
    sums: Mapping[Phase, Sums] | None = None
    splits: tuple[RankSplit, ...] = ()
    targets: Mapping[int, tuple[int, ...]] | None = None
    counts: Mapping[str, int] = dataclasses.field(default_factory=dict)
    class_weights: frozenset[int] = frozenset()
    arguments: Sequence[Mapping[str, bytes]] = ()

    @functools.cached_property
    def examples(self) -> collections.Counter[int] | None:
        """The multiset of the examples of all ranks. Examples that several ranks were all given count once."""
        return _multiset(self.rows)

    def of_arguments(self) -> dict[str, list[int]]:
        """Returns the hashes of each argument for all ranks in order; examples that several ranks were all given count once."""
        return {name: each for name, each in self._hashes_of_arguments().items() if not name.endswith(WHOLE)}

    def whole_arguments(self) -> dict[str, set[int]]:
        """Returns the hashes of each argument that does not have a row for each example, such as the edges of a graph."""
        found = self._hashes_of_arguments().items()
        return {name.removesuffix(WHOLE): {*each} for name, each in found if name.endswith(WHOLE)}

    def _hashes_of_arguments(self) -> dict[str, list[int]]:
        own = [self.arguments[rank] for rank in own_ranks(self.rows or {})] if self.arguments else []
        names = dict.fromkeys(name for each in own for name in each)
        whole = {name: b"".join(each.get(name, b"") for each in own) for name in names}
        return {name: np.frombuffer(each, "<u4").tolist() for name, each in whole.items()}

    @property
    def targeted(self) -> collections.Counter[int] | None:
        """The multiset of the examples with their targets, counted in the same way as `examples`."""
        return _multiset(self.targets)


@dataclasses.dataclass(frozen=True, eq=False)
class ReadAnew:
    """Steps that are read again each time they are iterated over.

    Attributes:
        read: Reads the steps.
    """

    read: Callable[[], Iterator[RunStep]]

    def __iter__(self) -> Iterator[RunStep]:
        return self.read()


@dataclasses.dataclass(frozen=True, eq=False)
class RecordedRun:
    """A whole run.

    Attributes:
        name: The run's name for messages.
        header: The header of the first rank, with whole tensors as its pieces.
        steps: The steps in order, from the frame of the initial weights on. They are read again at each iteration.
        later: The names of the tensors that did not exist before the first step.
        earlier: The learning rate and a hash of the examples of each step before these, if this run resumes another one.
        elsewhere: The names of the parameters of which the first rank holds nothing, or only a part.
        joined: The ranks that are taken for replicas of others, but may be pipeline stages that begin with the same weights.
    """

    name: str
    header: RecordHeader
    steps: Iterable[RunStep]
    later: frozenset[str] = frozenset()
    earlier: tuple[tuple[float, int | None], ...] = ()
    elsewhere: tuple[str, ...] = ()
    joined: tuple[int, ...] = ()

    @property
    def tensors(self) -> tuple[RecordedTensor, ...]:
        """The whole tensors, in the order of the model."""
        return self.header.tensors

    def first_sums(self, num_frames: int, *phases: Phase) -> list[Sums]:
        """Returns the sums of some phases of the first frames, as far as known; the first frame has the initial weights."""
        frames = [step.sums or {} for step in itertools.islice(self.steps, num_frames)]
        return [sums[phase] for sums in frames for phase in phases if phase in sums]


def digest_of(rows: Collection[int] | None) -> int | None:
    """Returns a hash of the examples of a recorded step that does not depend on their order; None if there are none.

    Args:
        rows: The hashes of the examples; None if they are unknown.
    """
    return hash((frozenset(rows), len(rows))) if rows else None


def _multiset(rows: Mapping[int, tuple[int, ...]] | None) -> collections.Counter[int] | None:
    return None if rows is None else collections.Counter(own_rows(rows))


def own_ranks(rows: Mapping[int, tuple[int, ...]]) -> list[int]:
    """Returns the ranks that were given examples, without those whose examples are exactly an earlier rank's."""
    if len(rows) == 1:
        return [rank for rank, each in rows.items() if each]
    first: dict[tuple[int, ...], int] = {}
    for rank, each in rows.items():
        if each:
            first.setdefault(each, rank)
    return list(first.values())


def own_rows(rows: Mapping[int, tuple[int, ...]]) -> Sequence[int]:
    """Returns the hashes of the examples of all ranks; examples that several ranks were all given count once."""
    ranks = own_ranks(rows)
    return rows[ranks[0]] if len(ranks) == 1 else [row for rank in ranks for row in rows[rank]]
