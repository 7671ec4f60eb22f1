"""The evidence from which a cause is found: the first step at which two recorded runs differ."""

import collections
import dataclasses
import itertools
import operator
from collections.abc import Collection, Mapping, Sequence

from samestep.common.mistakes.seen_tensor import SeenTensor, parameters
from samestep.common.steps import gradient_transforms
from samestep.common.steps.recorded_run import RankSplit


@dataclasses.dataclass(frozen=True, eq=False)
class Side:
    """One of the two runs, at the step that differs.

    Attributes:
        world: The number of processes.
        passes: The number of backward passes of the step.
        usual_passes: The largest number of passes in the steps before.
        loss: The loss of the step.
        parts: The loss of each backward pass of each rank.
        rows: The hashes of each rank's examples; None if they are not known.
        scalars: The scalars of the step.
        rates: The learning rate of each step so far, or of the whole run if hyper-parameters differ.
        digests: A hash of the examples of each step, until this one.
        is_seen_before: Whether most examples of this step were in earlier steps.
        splits: What ranks hold differently that should be the same.
        targets: The multiset of the hashes of examples with their targets; None if they are not known.
        later: A hash of the examples of each step after this one, if the data differ.
        following: The multiset of the examples of the step after this one, if the data differ.
        only: The shapes of the parameters that the other run does not have, by name.
        again: How many examples that the other run also has were given more often in this run, over all steps; None if unknown.
        alone: How many examples, over all steps, the other run does not have at all; None if unknown.
        repeated: How many examples were repeated within one pass over the data; None if unknown.
        comes_more_often: Whether the examples that only this run has in this step came more often, over all steps, than any
            example of the other run.
        is_elsewhere: Whether the other run gets, later in the pass, some of the examples that only this run has in this step.
        distinct: A lower bound on the number of different examples over all steps.
        is_evaluated: Whether the model was in evaluation mode.
        begins_pass: Whether a pass over the data began in this step.
        written: How many tensors the script has changed since the last update; 0 if unknown.
        trained_alone: The names of the parameters that got a gradient and that the other run does not have.
        shares_layers: Whether its ranks hold parts of the same layers (tensor parallelism) and so need the same examples.
        earlier: The learning rate and a hash of the examples of each step before these, if the other run continues after them.
        class_weights: For each rank, a hash of the class weights that its loss functions were given; 0 without class weights.
        whole_arguments: The hashes of each argument of the model that does not have a row for each example.
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
    splits: Sequence[RankSplit]
    targets: collections.Counter[int] | None = None
    later: Sequence[int | None] = ()
    following: collections.Counter[int] | None = None
    only: Mapping[str, tuple[int, ...]] = dataclasses.field(default_factory=dict)
    again: int | None = None
    alone: int | None = None
    repeated: int | None = None
    comes_more_often: bool = False
    is_elsewhere: bool = False
    distinct: int = 0
    is_evaluated: bool = False
    begins_pass: bool = False
    written: int = 0
    trained_alone: tuple[str, ...] = ()
    shares_layers: bool = False
    earlier: tuple[tuple[float, int | None], ...] = ()
    class_weights: frozenset[int] = frozenset()
    whole_arguments: Mapping[str, set[int]] = dataclasses.field(default_factory=dict)

    @property
    def examples(self) -> collections.Counter[int]:
        """The multiset of the examples of all ranks; an example counts for each rank that was given it."""
        return collections.Counter(row for rows in (self.rows or {}).values() for row in rows)

    @property
    def given(self) -> Mapping[int, int | None]:
        """A hash of the examples of each step; steps before those that both runs have count down from -1."""
        earlier = [digest for _, digest in self.earlier]
        return dict(enumerate([*earlier, *self.digests, *self.later], -len(earlier)))

    @property
    def factor(self) -> float:
        """The factor by which the gradient was multiplied between the backward pass and the update."""
        return gradient_transforms.factor(self.scalars)

    def calls_again(self, more: Collection[int]) -> bool:
        """Returns whether a rank is given adjacent examples once more, as in a repeated call of the model.

        Args:
            more: The examples that are given once more.
        """
        for rows in (self.rows or {}).values():
            last, again = dict[int, int](), list[tuple[int, int]]()  # places of a repetition and of its original
            for place, row in enumerate(rows):
                if row in more and row in last:
                    again.append((place, last[row]))
                last[row] = place
            follows = [one[0] + 1 == other[0] and one[1] < other[1] for one, other in itertools.pairwise(again)]
            if len(again) > 1 and all(map(operator.or_, [False, *follows], [*follows, False])):
                return True
        return False

    def split(self, *phases: str) -> dict[str, tuple[int, ...]]:
        """Returns the ranks that differ in the given phases, by the name of the tensor or scalar."""
        return {each.name: each.ranks for each in self.splits if each.phase in phases}


@dataclasses.dataclass(frozen=True, eq=False)
class Evidence:
    """What two runs did at the first step at which they differ.

    Attributes:
        phase: The first phase that differs: "data", "targets", "hyper-parameters", "initial weights", "loss", "gradient",
            "clipping",
            "update" or "replicas".
        step: The number of the step.
        a: One run.
        b: The other run.
        gradients: The gradients of each tensor that has one; empty if the step's were not recorded.
        moves: The move of each tensor, which is what the update added to it.
        moved: How far each tensor was from its start at the last pass of the step; empty if no script has moved any.
        updates: The move of each tensor until a script wrote it; empty if none did, or if that is unknown.
        writes: What scripts then added to these tensors.
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
        """Returns the same evidence with A and B exchanged."""
        every = self.gradients, self.moves, self.moved, self.updates, self.writes
        seen = (tuple(each.swapped() for each in tensors) for tensors in every)
        return Evidence(self.phase, self.step, self.b, self.a, *seen)

    @property
    def parameters(self) -> list[SeenTensor]:
        """The moves of all parameters."""
        return parameters(self.moves)

    @property
    def driven(self) -> list[SeenTensor]:
        """The moves of the parameters that moved in either run."""
        return [each for each in self.parameters if each.one.any() or each.other.any()]

    @property
    def is_transformed(self) -> bool:
        """Whether one of the two runs may have changed the norm of its gradient before the update."""
        return any(gradient_transforms.CLIP_NORM in side.scalars for side in (self.a, self.b))

    @property
    def clipped(self) -> float:
        """The factor by which B's gradient was multiplied before the update, over A's; NaN if A's factor is 0."""
        return gradient_transforms.clipped_ratio(self.a.scalars, self.b.scalars)

    def scalars(self, name: str) -> list[float | None]:
        """Returns a scalar of the step in A and in B; None for a run that does not have it."""
        return [side.scalars.get(name) for side in (self.a, self.b)]

    def counts(self, name: str) -> list[int]:
        """Returns how often something happened in the step in A and in B, according to the scalar of that name."""
        return [int(side.scalars.get(name, 0)) for side in (self.a, self.b)]

    @property
    def loss_ratio(self) -> float | None:
        """The ratio of B's loss to A's; None if A's is zero, or either is unknown."""
        return self.b.loss / self.a.loss if self.a.loss and self.b.loss is not None else None
