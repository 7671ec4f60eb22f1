"""Walks two recorded runs step by step, and keeps of the past what a cause may need."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from samestep.common.judging.recorded.hashes import comparable
from samestep.common.judging.recorded.pairing import Pairing
from samestep.common.judging.recorded.rest import Begun, Rest
from samestep.common.judging.recorded.seen_examples import SeenExamples
from samestep.common.judging.recorded.yardstick import RoundingScale, Yardstick, apart_of, finite, multiples
from samestep.common.mistakes.evidence import Evidence, SeenTensor, Side, digits_of, kind_of
from samestep.common.steps.projections import PROJECTIONS
from samestep.common.steps.record import Phase
from samestep.common.steps.recorded_run import RecordedRun, RunStep, Sums, digest_of, own_rows

MOST_REMEMBERED = 100_000
"""Steps of which rates and digests are kept: beyond that, a repeated epoch is not recognized as one."""


@dataclasses.dataclass(frozen=True, eq=False)
class ComparedTensors:
    """The tensors of a phase of a step, compared.

    Attributes:
        one: In A.
        other: In B.
        scale: What differences are divided by.
        apart: The norm of the difference of each tensor.
        times: The difference of each tensor, in multiples of what rounding makes.
    """

    one: Sums
    other: Sums
    scale: RoundingScale
    apart: np.ndarray
    times: np.ndarray

    @property
    def differs(self) -> np.ndarray:
        """Whether each tensor differs for certain, as where only one run has numbers."""
        return (self.times > self.scale.different) | (np.isinf(self.apart) & ~self.is_broken)

    @property
    def is_unsure(self) -> np.ndarray:
        """Whether each may differ."""
        return (self.times > self.scale.same) & ~self.differs

    @property
    def is_broken(self) -> np.ndarray:
        """Whether each holds, in one of the two, something infinite or not a number."""
        return np.any([~np.isfinite(sums.square) & (sums.bits != 0) for sums in (self.one, self.other)], axis=0)


@dataclasses.dataclass(eq=False)
class Past:
    """What one run did before a step.

    Attributes:
        world: Its number of processes.
        usual_passes: The most backward passes that a step had.
        rates: The learning rate of each step.
        digests: A hash of the examples of each step.
        weights: After the step before; None if it was not looked at.
        gradients: The gradients of the step before; None if it was not looked at.
        strays: The projections of gradients that steps left and that no update used yet; NaN or None where there are none.
        examples: Those of all steps.
    """

    world: int
    usual_passes: int = 0
    rates: list[float] = dataclasses.field(default_factory=list)
    digests: list[int | None] = dataclasses.field(default_factory=list)
    weights: Sums | None = None
    gradients: Sums | None = None
    strays: np.ndarray | None = None
    examples: SeenExamples = dataclasses.field(default_factory=SeenExamples)

    def note(self, step: RunStep) -> None:
        """Notes what a step was given, before it is judged."""
        if step.number < 0 or len(self.rates) >= MOST_REMEMBERED:
            return
        self.rates.append(step.scalars.get("lr", float("nan")))
        own = None if step.rows is None else own_rows(step.rows)
        self.digests.append(digest_of(own))
        self.examples.add(own or ())

    def end(self, step: RunStep) -> None:
        """Notes what a step did, after it was judged."""
        self.usual_passes = max(self.usual_passes, step.passes)
        sums = step.sums or {}
        self.weights, self.gradients, stray = sums.get("weight"), sums.get("gradient"), sums.get("stray")
        if self.strays is not None and self.gradients is not None:
            self.strays[~np.isnan(self.gradients.square)] = np.nan
        if stray is not None:
            before = np.full_like(stray.projections, np.nan) if self.strays is None else self.strays
            self.strays = np.where(np.isnan(stray.projections), before, stray.projections)


@dataclasses.dataclass(eq=False)
class Walk:
    """Two runs, side by side.

    Attributes:
        a: The one.
        b: The other.
        pairing: The pairing of their tensors.
        yardstick: How far rounding takes a step.
        longer: "A" or "B", if only that one has later steps than both have; known after the last of these.
        asides: What was seen that is no difference, as sentences.
        lone_loss: What B's loss is as a multiple of A's, where it alone differs; NaN if that changes, 0 if none does.
        begun: The initial weights of both; None if they are not known.
    """

    a: RecordedRun
    b: RecordedRun
    pairing: Pairing
    yardstick: Yardstick
    longer: str = ""
    asides: dict[str, None] = dataclasses.field(default_factory=dict)
    lone_loss: float = 0.0
    begun: Begun | None = None
    _rest: Rest = dataclasses.field(default_factory=Rest)
    _pair: tuple[RunStep | None, RunStep | None] = (None, None)
    _compared: dict[Phase, ComparedTensors | None] = dataclasses.field(default_factory=dict)

    def steps(self) -> Iterator[tuple[RunStep, RunStep]]:
        """Yields the steps that both have, in order."""
        ours, theirs = iter(self.a.steps), iter(self.b.steps)
        one, other = next(ours, None), next(theirs, None)
        while one is not None and other is not None:
            if one.number == other.number:
                yield comparable((self.a.header, self.b.header), one, other, self.asides)
                one, other = next(ours, None), next(theirs, None)
            else:
                one, other = (next(ours, None), other) if one.number < other.number else (one, next(theirs, None))
        self.longer = "B" if other is not None else "A" if one is not None else ""

    def compare(self, phase: Phase, one: RunStep, other: RunStep) -> ComparedTensors | None:
        """Compares all tensors in a phase of a step.

        Args:
            phase: Which.
            one: A's step.
            other: B's.

        Returns:
            None where either was not looked at.
        """
        if self._pair[0] is not one or self._pair[1] is not other:
            self._pair, self._compared = (one, other), {}
        if phase not in self._compared:  # a step is asked for several times
            self._compared[phase] = self._compare(phase, one, other)
        return self._compared[phase]

    def _compare(self, phase: Phase, one: RunStep, other: RunStep) -> ComparedTensors | None:
        if not one.sums or not other.sums or phase not in one.sums or phase not in other.sums:
            return None
        ours, theirs = self.pairing.of(one.sums[phase], 0), self.pairing.of(other.sums[phase], 1)
        scale, apart = self.yardstick.of(one.number, phase, ours), apart_of(ours, theirs)
        if phase == "gradient" and one.is_skipped and other.is_skipped:
            apart[np.isinf(apart)] = 0.0  # of what overflowed, the sums differ
        if phase == "weight" and self.begun is not None:
            apart[self.begun.wait(ours, theirs)] = 0.0
        if phase == "weight" and (gradient := self.compare("gradient", one, other)) is not None:
            scale = self._rest.scaled(scale, one, gradient.scale)
        return ComparedTensors(ours, theirs, scale, apart, multiples(apart, scale.rounding))

    def evidence(self, phase: str, one: RunStep, other: RunStep, past: tuple[Past, Past]) -> Evidence:
        """Gathers what a cause is found from.

        Args:
            phase: The first that differs.
            one: A's step.
            other: B's.
            past: The past of both.
        """
        is_alone = phase == "update" and one.is_skipped != other.is_skipped  # which is all that there is to explain
        gradient, weight = (None if is_alone else self.compare(each, one, other) for each in ("gradient", "weight"))
        moves: tuple[SeenTensor, ...] = ()
        if weight is not None and past[0].weights is not None and past[1].weights is not None:
            before = [self.pairing.of(sums, side) for side, sums in enumerate((past[0].weights, past[1].weights))]
            moves = self.seen(weight, (before[0].projections, before[1].projections))
        only = [self.pairing.only(run.tensors, side) for side, run in enumerate((self.a, self.b))]
        shares = ["tp" in run.header.layouts for run in (self.a, self.b)]
        a, b = (_side(*each) for each in zip((one, other), past, only, shares, strict=True))
        seen = self.seen(gradient) if gradient else ()
        seen = _with_earlier(seen, self.pairing, past[0].gradients) if past[0].gradients is not None else seen
        seen = _with_strays(seen, self.pairing, past) if any(each.strays is not None for each in past) else seen
        return Evidence(phase, one.number, a, b, seen, moves)

    def seen(
        self, compared: ComparedTensors, before: tuple[np.ndarray, np.ndarray] | None = None
    ) -> tuple[SeenTensor, ...]:
        """Returns what was seen of the tensors that have numbers in either run.

        Args:
            compared: In a phase.
            before: The projections of both runs' weights before the step: then it is of what the update added.
        """
        found = []
        for place, tensor in enumerate(self.pairing.tensors):
            one, other = (finite(sums.projections[place]) for sums in (compared.one, compared.other))
            if before is not None:
                one, other = one - before[0][place], other - before[1][place]
            elif tensor.role != "parameter" or (not one.any() and not other.any()):
                continue
            kind, size = kind_of(tensor.name, tensor.layer, tensor.piece.shape), int(self.pairing.sizes[place])
            rounding, bound = float(compared.scale.rounding[place]), compared.scale.same
            norms = (compared.one.norm[place], compared.other.norm[place]) if before is None else None
            bits = [digits_of(int(sums.bits[place]), tensor.dtype) for sums in (compared.one, compared.other)]
            digits = None if bits[0] is None or bits[1] is None else (bits[0], bits[1])
            made = SeenTensor(
                tensor.name, kind, tensor.role, size, one, other, rounding, bound, before and before[0][place]
            )
            found.append(dataclasses.replace(made, shape=tensor.piece.shape, digits=digits, norms=norms))
        return tuple(found)


def _with_earlier(seen: Sequence[SeenTensor], pairing: Pairing, sums: Sums) -> tuple[SeenTensor, ...]:
    """Adds A's gradients of the step before."""
    own = dict(zip((tensor.name for tensor in pairing.tensors), pairing.of(sums, 0).projections, strict=True))
    return tuple(dataclasses.replace(each, earlier=np.nan_to_num(own[each.name])) for each in seen)


def _with_strays(seen: Sequence[SeenTensor], pairing: Pairing, past: tuple[Past, Past]) -> tuple[SeenTensor, ...]:
    """Adds the gradients that steps before left."""
    none = np.zeros((len(pairing.tensors), PROJECTIONS))
    one, other = (
        none if each.strays is None else np.nan_to_num(each.strays[places])
        for each, places in zip(past, pairing.places, strict=True)
    )
    own = dict(zip((tensor.name for tensor in pairing.tensors), zip(one, other, strict=True), strict=True))
    return tuple(dataclasses.replace(each, strays=own[each.name]) for each in seen)


def _side(step: RunStep, past: Past, only: Mapping[str, tuple[int, ...]], shares_layers: bool) -> Side:
    own = past.world, step.passes, past.usual_passes, step.loss, step.parts, step.rows, step.scalars
    more = past.rates, past.digests, past.examples.knew_last()
    return Side(
        *(*own, *more),
        [(split.phase, split.name, split.ranks) for split in step.splits],
        targets=step.targeted,
        only=only,
        is_evaluated=step.is_evaluated,
        begins_pass=bool(step.counts.get("data_passes")),
        written=step.counts.get("written_tensors", 0),
        shares_layers=shares_layers,
    )
