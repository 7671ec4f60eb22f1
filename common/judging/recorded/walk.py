"""Walks through two recorded runs step by step, and gathers the evidence for a cause."""

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np

from samestep.common.judging.recorded.differences import ComparedTensors, apart_of, finite, multiples
from samestep.common.judging.recorded.divisors import Divisors
from samestep.common.judging.recorded.pairing import Pairing
from samestep.common.judging.recorded.past import Past
from samestep.common.judging.recorded.weights import InitialSums, MovedStatistics, WeightRounding, as_trained
from samestep.common.judging.recorded.yardstick import Yardstick
from samestep.common.mistakes.evidence import Evidence, Side
from samestep.common.mistakes.seen_tensor import SeenTensor, kind_of
from samestep.common.steps.record import FOLLOWER, Phase
from samestep.common.steps.recorded_run import RankSplit, RecordedRun, RunStep, Sums


@dataclasses.dataclass(eq=False)
class Walk:
    """Two runs, side by side.

    Attributes:
        a: One run.
        b: The other run.
        yardstick: How far rounding moves a step; it also pairs the tensors of the two runs.
        longer: "A" or "B", if only that run has steps after the last one that both have; known once that was yielded.
        asides: Notes on what was seen that is no difference, as sentences.
        lone_loss: B's loss as a multiple of A's, where only the loss differs; NaN if that changes, 0 if it never does.
        begun: The initial weights of both; None if they are not known.
        divisors: What running variances are divided by, if the runs use different frameworks; else None.
        further: The steps after those that were yielded last; None where a run has ended.
    """

    a: RecordedRun
    b: RecordedRun
    yardstick: Yardstick
    longer: str = ""
    asides: dict[str, None] = dataclasses.field(default_factory=dict)
    lone_loss: float = 0.0
    begun: InitialSums | None = None
    divisors: Divisors | None = dataclasses.field(init=False)
    further: tuple[RunStep | None, RunStep | None] = (None, None)
    _weight_rounding: WeightRounding = dataclasses.field(init=False)
    _moved: MovedStatistics = dataclasses.field(init=False)
    _pair: tuple[RunStep | None, RunStep | None] = (None, None)
    _compared: dict[Phase, ComparedTensors | None] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        """Prepares the tensors' rounding, and the divisors of running variances if the frameworks differ."""
        self._weight_rounding = WeightRounding(self.pairing.tensors)
        self._moved = MovedStatistics(self.pairing.tensors)
        self.divisors = Divisors(self.pairing) if self.a.header.framework != self.b.header.framework else None

    @property
    def pairing(self) -> Pairing:
        """The pairing of the tensors of both runs."""
        return self.yardstick.pairing

    @property
    def but_for(self) -> tuple[str, ...]:
        """The names of what differs without showing in any gradient."""
        differs = {"the loss": self.lone_loss, "running variances": self.divisors and self.divisors.names}
        return tuple(name for name, is_so in differs.items() if is_so)

    def steps(self) -> Iterator[tuple[RunStep, RunStep]]:
        """Yields the steps that both runs have, in order."""
        ours, theirs = iter(self.a.steps), iter(self.b.steps)
        one, other = next(ours, None), next(theirs, None)
        while one is not None and other is not None:
            if one.number == other.number:
                self.further = next(ours, None), next(theirs, None)
                yield as_trained((self.a, self.b), (one, other), self.further, self.asides)
                one, other = self.further
            else:
                one, other = (next(ours, None), other) if one.number < other.number else (one, next(theirs, None))
        self.longer = "B" if other is not None else "A" if one is not None else ""

    def compare(self, phase: Phase, one: RunStep, other: RunStep) -> ComparedTensors | None:
        """Compares all tensors in a phase of a step.

        Args:
            phase: The phase.
            one: A's step.
            other: B's.

        Returns:
            The comparison; None if one of the two runs did not record the phase.
        """
        if self._pair[0] is not one or self._pair[1] is not other:
            self._pair, self._compared = (one, other), {}
        if phase not in self._compared:  # the same step is asked for several times
            self._compared[phase] = self._compare(phase, one, other)
        return self._compared[phase]

    def _compare(self, phase: Phase, one: RunStep, other: RunStep) -> ComparedTensors | None:
        if not one.sums or not other.sums or phase not in one.sums or phase not in other.sums:
            return None
        ours, theirs = self.pairing.of(one.sums[phase], 0), self.pairing.of(other.sums[phase], 1)
        scale, apart = self.yardstick.of(one.number, phase, ours), apart_of(ours, theirs)
        if phase == "gradient" and one.is_skipped and other.is_skipped:
            apart[np.isinf(apart)] = 0.0  # sums of overflowed gradients differ
        if phase == "weight":
            differs = (apart > scale.same * scale.rounding) & (apart < np.inf)
            apart[self._moved_earlier((ours, theirs), apart, differs)] = 0.0
            if self.begun is not None:
                apart[self.begun.are_unmoved(ours, theirs)] = 0.0
            scale = self._weight_rounding.scaled(scale, one, (ours, theirs), self.compare("gradient", one, other))
            if self.divisors is not None:
                apart[self.divisors.explain(one.number, ours, theirs, scale.rounding, scale.same)] = 0.0
        return ComparedTensors(ours, theirs, scale, apart, multiples(apart, scale.rounding))

    def _moved_earlier(self, now: tuple[Sums, Sums], apart: np.ndarray, differs: np.ndarray) -> np.ndarray:
        """Returns which statistics differ since only one of the two calls its model between this step and the next."""
        sums = [each.sums["weight"] for each in self.further if each and each.sums and "weight" in each.sums]
        if len(sums) < 2 or self.further[0] is None:
            return self._moved.known(differs)
        ours, theirs = (self.pairing.of(each, side) for side, each in enumerate(sums))
        scale = self.yardstick.of(self.further[0].number, "weight", ours)
        return self._moved.found((now, (ours, theirs)), apart, differs, scale, self.asides)

    def is_going_on(self, one: RunStep, other: RunStep) -> bool:
        """Returns whether only one of the two runs makes its next update without a backward pass.

        Args:
            one: A's step.
            other: B's.
        """
        lacks = [each is not None and each.loss is None for each in self.further]
        return None not in (one.loss, other.loss) and lacks[0] != lacks[1]

    def evidence(self, phase: str, one: RunStep, other: RunStep, past: tuple[Past, Past]) -> Evidence:
        """Gathers the evidence from which a cause is found.

        Args:
            phase: The first phase that differs.
            one: A's step.
            other: B's.
            past: The past of A and that of B.
        """
        is_alone = phase == "update" and one.is_skipped != other.is_skipped  # nothing else needs to be explained
        gradient, weight = (None if is_alone else self.compare(each, one, other) for each in ("gradient", "weight"))
        starts = [sums for each in past if (sums := each.before("weight"))]
        gradients = self.seen(gradient, past=past) if gradient else ()
        moves = () if weight is None or len(starts) < len(past) else self.seen(weight, starts)
        if gradient:  # a frozen parameter that moves is a teacher's or an average's within the model
            frozen = {each.name for each in self.pairing.tensors if each.role == "parameter" and not each.is_trained}
            frozen -= {each.name for each in gradients}
            moves = tuple(dataclasses.replace(each, role=FOLLOWER) if each.name in frozen else each for each in moves)
        a, b = (self._side(side, step, past[side]) for side, step in enumerate((one, other)))
        return Evidence(phase, one.number, a, b, gradients, moves)

    def _side(self, side: int, step: RunStep, past: Past) -> Side:
        run = (self.a, self.b)[side]
        own = run.header.world, step.passes, past.usual_passes, step.loss, step.parts, step.rows, step.scalars
        return Side(
            *own,
            past.rates,
            past.digests,
            past.examples.knew_last(),
            step.splits if side == 0 else self._named_as_of_a(step),
            targets=step.targeted,
            only=self.pairing.only(run.tensors, side),
            is_evaluated="evaluated_calls" in step.counts,
            begins_pass=bool(step.counts.get("data_passes")),
            written=step.counts.get("written_tensors", 0),
            trained_alone=(*self.trained_alone(step, side),),
            shares_layers="tp" in run.header.layouts,
            earlier=run.earlier,
            class_weights=step.class_weights,
            whole_arguments=step.whole_arguments(),
        )

    def _named_as_of_a(self, step: RunStep) -> list[RankSplit]:
        """Returns what B's ranks hold differently, by A's names: stages of a pipeline have other names than a whole model."""
        ours, theirs = self.pairing.tensors, self.pairing.places[1]
        names = {self.b.tensors[place].name: each.name for each, place in zip(ours, theirs, strict=True)}
        return [dataclasses.replace(each, name=names.get(each.name, each.name)) for each in step.splits]

    def trained_alone(self, step: RunStep, side: int) -> dict[str, int]:
        """Returns the parameters that have gradients at a step and do not exist in the other run, with their places.

        Args:
            step: The step.
            side: 0 if the step is A's, 1 if it is B's.
        """
        gradient, own = (step.sums or {}).get("gradient"), (self.pairing.only_a, self.pairing.only_b)[side]
        tensors = enumerate((self.a, self.b)[side].tensors) if gradient is not None and own else ()
        return {
            tensor.name: place
            for place, tensor in tensors
            if gradient and tensor.name in own and tensor.role == "parameter" and gradient.square[place] > 0
        }

    def seen(
        self, compared: ComparedTensors, starts: Sequence[Sums] = (), past: Sequence[Past] = ()
    ) -> tuple[SeenTensor, ...]:
        """Returns the gradients of the parameters that have one in either run, or how far all tensors have moved.

        Args:
            compared: The gradients, or the weights.
            starts: The weights of both runs from which the moves are measured; empty for gradients.
            past: The past of both runs, if what earlier steps left behind is needed.
        """
        sides = compared.one, compared.other
        norms, earlier = [sums.norm for sums in sides], past[0].before("gradient") if past else None
        strays = [each.left() for each in past] if any(each.strays is not None for each in past) else None
        found = []
        for place, tensor in enumerate(self.pairing.tensors):
            one, other = (finite(sums.projections[place]) for sums in sides)
            if not starts and (tensor.role != "parameter" or not (one.any() or other.any())):
                continue
            kind, size = kind_of(tensor.name, tensor.layer, tensor.piece.shape), int(self.pairing.sizes[place])
            rounding, bound = float(compared.scale.rounding[place]), compared.scale.same
            bits = [digits_of(int(sums.bits[place]), tensor.dtype) for sums in sides]
            more: dict[str, object] = {"shape": tensor.piece.shape, "digits": None if None in bits else tuple(bits)}
            if starts:
                begun = [sums.projections[place] for sums in starts]
                one, other, more["before"] = one - begun[0], other - begun[1], begun[0]
            else:
                more["norms"] = norms[0][place], norms[1][place]
                more["earlier"] = None if earlier is None else np.nan_to_num(earlier.projections[place])
                more["strays"] = strays and (strays[0][place], strays[1][place])
            found.append(SeenTensor(tensor.name, kind, tensor.role, size, one, other, rounding, bound, **more))  # pyrefly: ignore[bad-argument-type]
        return tuple(found)


def digits_of(bits: int, dtype: str) -> int | None:
    """Returns the most binary digits after the first that any of the numbers has, as inferred from the sum of their bits.

    Digits that all numbers lack are zeros at the end of the sum. One in two sums ends in such a zero by chance.

    Args:
        bits: The sum of the bits, taken as words of 32 bits.
        dtype: The dtype of the numbers.
    """
    in_a_word = {"float32": 23, "float64": 20}.get(dtype)
    if in_a_word is None or not bits:
        return None
    return max(0, in_a_word - ((bits & -bits).bit_length() - 1))
