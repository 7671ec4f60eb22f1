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
        usual_passes: How many passes the steps before usually took.
        loss: The loss of the step.
        parts: The loss of each backward pass of each rank.
        rows: The hashes of each rank's examples; None if they are not known.
        scalars: The scalars of the step.
        rates: The learning rate of each step, of the whole run if hyper-parameters differ.
        digests: A hash of the examples of each step, until this one.
        is_seen_before: Whether most examples of this step were in steps before.
        splits: What ranks hold differently that should be the same.
        targets: The multiset of the hashes of examples with their targets; None if they are not known.
        later: A hash of the examples of each step after this one, if the data differ.
        following: The multiset of the examples of the step after this one, if the data differ.
        only: The shapes of the parameters that the other run does not have, by name.
        again: How many examples that the other run also has were given more often in this run, over all steps; None if not
            known.
        alone: How many examples, over all steps, the other run does not have at all; None if not known.
        repeated: How many examples were repeated within one pass through a DataLoader; None if not known.
        comes_more_often: Whether the examples that only it has in this step came more often over all steps than any of the
            other run.
        is_elsewhere: Whether the other run was given some of the examples that only this run has here later in the pass.
        distinct: The least number of different examples over all steps.
        is_evaluated: Whether the model was in evaluation mode.
        begins_pass: Whether a pass through the data began in this step.
        written: How many tensors the script has changed since the last update; 0 if not known.
        trained_alone: The names of the parameters that got a gradient and that the other run does not have.
        shares_layers: Whether its ranks hold parts of the same layers (tensor parallelism), so they need the same examples.
        earlier: The learning rate and a hash of the examples of each step before these, if the other run continues after them.
        class_weights: For each rank, a hash of the class weights that its loss functions were given; 0 without any.
        whole_arguments: The hashes of each argument of the model that has no row for each example.
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
        """The multiset of the examples of all ranks, each rank's counted."""
        return collections.Counter(row for rows in (self.rows or {}).values() for row in rows)

    @property
    def given(self) -> Mapping[int, int | None]:
        """A hash of the examples of each step; those before the steps that both runs have count down from -1."""
        earlier = [digest for _, digest in self.earlier]
        return dict(enumerate([*earlier, *self.digests, *self.later], -len(earlier)))

    @property
    def factor(self) -> float:
        """The factor by which the gradient was multiplied between the backward pass and the update."""
        return gradient_transforms.factor(self.scalars)

    def calls_again(self, more: Collection[int]) -> bool:
        """Returns whether a rank is given examples once more that are neighbours, as those of a whole repeated call are.

        Args:
            more: The examples.
        """
        for rows in (self.rows or {}).values():
            last, again = dict[int, int](), list[tuple[int, int]]()  # where it comes now, and where it came before
            for place, row in enumerate(rows):
                if row in more and row in last:
                    again.append((place, last[row]))
                last[row] = place
            follows = [one[0] + 1 == other[0] and one[1] < other[1] for one, other in itertools.pairwise(again)]
            if len(again) > 1 and all(map(operator.or_, [False, *follows], [*follows, False])):
                return True
        return False

    def split(self, *phases: str) -> dict[str, tuple[int, ...]]:
        """Returns the ranks that differ in some phases, by the name of the tensor or scalar."""
        return {each.name: each.ranks for each in self.splits if each.phase in phases}


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
        moves: The move of each tensor, which is what the update added to it.
        moved: How far each tensor was from its start at the last pass of the step; empty if no script has moved any.
        updates: The move of each tensor until a script wrote it; empty if none did, or that is not known.
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
        """Returns the same with A and B in each other's place."""
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
        return any(gradient_transforms.is_transformed(side.scalars) for side in (self.a, self.b))

    @property
    def clipped(self) -> float:
        """The factor by which B's gradient was multiplied before the update, over A's; NaN if A's factor is 0."""
        return gradient_transforms.clipped_ratio(self.a.scalars, self.b.scalars)

    def scalars(self, name: str) -> list[float | None]:
        """Returns a scalar of the step in A and in B; None where it has none of that name."""
        return [side.scalars.get(name) for side in (self.a, self.b)]

    def counts(self, name: str) -> list[int]:
        """Returns how often something happened in the step in A and in B, according to the scalar of that name."""
        return [int(side.scalars.get(name, 0)) for side in (self.a, self.b)]

    @property
    def loss_ratio(self) -> float | None:
        """B's loss over A's."""
        return self.b.loss / self.a.loss if self.a.loss and self.b.loss is not None else None
