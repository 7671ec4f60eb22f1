"""How far rounding alone moves a step of a recorded run, measured by perturbing the weights in their last bit."""

import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence, Set

import numpy as np

from samestep.common.errors import percent
from samestep.common.judging.recorded.differences import (
    THRESHOLD,
    RoundingScale,
    apart_of,
    coarsest_roundoff,
    finite,
    floor,
    of_projecting,
    unit_of,
    with_layers,
)
from samestep.common.judging.recorded.hashes import are_other
from samestep.common.judging.recorded.pairing import Pairing, like, places_in
from samestep.common.steps.record import Phase, RecordHeader
from samestep.common.steps.recorded_run import RecordedRun, Sums

DERIVED = 32.0
"""The error of a sum of a thousand terms, in unit roundoffs, where nothing was measured."""
DERIVED_ZONE = 1e3
"""The multiple of the threshold up to which nothing is decided where nothing was measured."""
POOLED = 0.3
"""The share of the median relative spread of all tensors that counts as the least spread of each tensor: four perturbations of
a single number may all be small by chance."""
CERTAIN = THRESHOLD * DERIVED_ZONE
"""The multiple of rounding from which on a difference is more than rounding even where nothing was measured."""
MOST_GROWTH = 100.0
"""The largest growth of rounding, as an exponent of e; rounding dominates everything long before."""
CHAOTIC = 0.8
"""The share of its norm by which rounding moves the median gradient once it no longer grows in proportion. If rounding
multiplies a gradient by exp(x), with a normal x, reruns differ from A by the root mean square of exp(x) - 1. At a share of 0.8,
exp(x) - 1 reaches 10 times that at 3.68 deviations, which the worst of healthy pairs have. (A test computes it.)"""


@dataclasses.dataclass(frozen=True, eq=False)
class Yardstick:
    """How far rounding moves a step, as shown by perturbed reruns, or derived from unit roundoffs if there are none.

    Attributes:
        unit: How far rounding moves a number, relative to its size.
        pairing: The pairing of the tensors.
        spreads: (step, phase) -> the root mean square, over reruns, of each tensor's difference from A.
        losses: Step -> the root mean square of the loss's difference from A.
        last: The last step of the reruns.
        rate: The factor by which the weights' spread grew in a step, on average over the second half of the reruns.
        chaotic: The steps at which rounding does not grow in proportion -> the share of its norm by which it moves the median
            gradient.
        computed: The steps whose examples differ in the reruns, e.g. because they are computed from the weights.
    """

    unit: np.ndarray
    pairing: Pairing
    spreads: Mapping[tuple[int, Phase], np.ndarray] = dataclasses.field(default_factory=dict)
    losses: Mapping[int, float] = dataclasses.field(default_factory=dict)
    last: int = -1
    rate: float = 1.0
    chaotic: Mapping[int, float] = dataclasses.field(default_factory=dict)
    computed: Set[int] = frozenset()

    @classmethod
    def derived(cls, one: RecordHeader, other: RecordHeader, pairing: Pairing) -> "Yardstick":
        """Makes the yardstick of two runs without reruns, which is that of the run that rounds more.

        Args:
            one: The header of A.
            other: The header of B.
            pairing: The pairing of their tensors.
        """
        unit = unit_of(pairing, one.is_float64)
        return cls(np.maximum(unit, max(map(coarsest_roundoff, (one, other)))), pairing)

    @property
    def is_measured(self) -> bool:
        """Whether there are reruns."""
        return bool(self.spreads)

    def of(self, number: int, phase: Phase, sums: Sums) -> RoundingScale:
        """Returns the yardstick of every tensor at a step.

        Args:
            number: The number of the step.
            phase: What the sums are of.
            sums: The sums of A.
        """
        norm = finite(sums.norm)
        least = self.unit * (norm + floor(sums, self.pairing, phase)) + of_projecting(norm, self.pairing, phase)
        if not self.is_measured:
            return _derived(number, least)
        step = min(number, self.last)
        spread = self.spreads.get((step, phase))
        if spread is None:
            spread, step = np.zeros(len(sums.square)), self.last - 1  # a step that the reruns did not record
        pooled = POOLED * _median_share(spread, norm) * norm
        rounding = np.maximum.reduce([np.nan_to_num(spread, nan=math.inf), pooled, least])
        if phase == "gradient":
            rounding = with_layers(rounding, self.pairing)
        return self._measured(number, rounding, step == number)

    def of_loss(self, number: int, loss: float) -> RoundingScale:
        """Returns the yardstick of the loss, which also uses nearby steps, since four numbers are too few.

        Args:
            number: The number of the step.
            loss: The loss of A.
        """
        least = float(self.unit.max()) * abs(loss)
        if not self.is_measured:
            return _derived(number, np.array([least]))
        step = min(number, self.last)
        near = [self.losses[each] for each in range(step - 2, step + 3) if each in self.losses]
        most = max(_root_mean_square(near), 2 * least)
        return self._measured(number, np.array([most]), step == number and bool(near))

    def _measured(self, number: int, rounding: np.ndarray, is_known: bool) -> RoundingScale:
        """Returns the scale that reruns give for a step; later steps than theirs stay undecided."""
        decides = CERTAIN if number in self.chaotic else THRESHOLD
        return RoundingScale(rounding * self._growth(number), THRESHOLD, decides if is_known else math.inf)

    def said_of(self, number: int) -> tuple[str, ...]:
        """Returns why a step cannot be decided because of rounding, as a sentence; () if it can.

        Args:
            number: The number of the step.
        """
        if number not in self.chaotic:
            return ()
        return (
            f"rounding alone moves half of the gradients of step {number} by {percent(self.chaotic[number])} of their norm or "
            f"more. There its effect is not proportional, and even {CERTAIN:,.0f} times the measured effect may be rounding",
        )

    def _growth(self, number: int) -> float:
        """Returns how much the spread has grown since the last step of the reruns, if it continues as before."""
        later = number - self.last
        if later <= 0:
            return 1.0
        return max(number / max(self.last, 1), math.exp(min(later * math.log(self.rate), MOST_GROWTH)))


def _derived(number: int, rounding: np.ndarray) -> RoundingScale:
    """Returns the yardstick of a step if nothing was measured, from the effect of a single rounding."""
    growth = 2.0 ** min(max(number, 0), 30)  # usually a step at most doubles the effect of earlier ones
    different = THRESHOLD * DERIVED_ZONE / growth if growth < DERIVED_ZONE else math.inf
    return RoundingScale(DERIVED * growth * rounding, THRESHOLD, different)


def _median_share(spread: np.ndarray, norm: np.ndarray) -> float:
    """Returns the median spread of all tensors that have numbers, relative to their norms."""
    return float(np.median((spread / np.maximum(norm, 1e-300))[norm > 0])) if (norm > 0).any() else 0.0


def measure(a: RecordedRun, perturbed: Sequence[RecordedRun], pairing: Pairing, side: int = 0) -> Yardstick:
    """Measures what perturbations did to the steps of a run.

    Args:
        a: The run.
        perturbed: The first steps of its command, run again from perturbed weights; the reruns may differ in length.
        pairing: The pairing of A and B.
        side: 0 if the run is A, 1 if it is B.
    """
    spreads: dict[tuple[int, Phase], np.ndarray] = {}
    losses: dict[int, float] = {}
    chaotic: dict[int, float] = {}
    computed, is_hashed_otherwise = set[int](), any(are_other(a.header, run.header) for run in perturbed)
    iterators, last = [(iter(run.steps), places_in(a, run)) for run in perturbed], -1
    for step in a.steps:
        others = [(other, places) for each, places in iterators if (other := next(each, None)) is not None]
        if not others:
            break
        last = step.number
        if not is_hashed_otherwise and any(each.rows != step.rows for each, _ in others):
            computed.add(last)
        if step.loss is not None:
            losses[last] = _root_mean_square([each.loss - step.loss for each, _ in others if each.loss is not None])
        for phase, sums in (step.sums or {}).items():
            ours = pairing.of(sums, side)
            seen = [like(each.sums[phase], sums, at) for each, at in others if each.sums and phase in each.sums]
            moved = [pairing.of(each, side) for each in seen]
            if moved:
                spreads[last, phase] = np.sqrt(np.mean([apart_of(ours, each) ** 2 for each in moved], axis=0))
                share = _median_share(spreads[last, phase], finite(ours.norm))
                if phase == "gradient" and share >= CHAOTIC:
                    chaotic[last] = share
    unit, rate = unit_of(pairing, a.header.is_float64), _rate(spreads, last)
    return Yardstick(unit, pairing, spreads, losses, last, rate, chaotic, computed)


def _rate(spreads: Mapping[tuple[int, Phase], np.ndarray], last: int) -> float:
    """Returns the growth of the weights' spread per step; 2 if there are too few steps to measure it."""
    half = last // 2
    if last < 2 or (last, "weight") not in spreads or (half, "weight") not in spreads:
        return 2.0
    now, then = (float(np.linalg.norm(np.nan_to_num(spreads[step, "weight"], posinf=0))) for step in (last, half))
    return max(1.0, (now / then) ** (1 / (last - half))) if then else 2.0


def coarser(one: Yardstick, other: Yardstick) -> Yardstick:
    """Returns the coarser of two yardsticks at the steps where both were measured; elsewhere the first.

    Args:
        one: The yardstick of one run.
        other: The yardstick of the other run.
    """
    spreads = {key: np.fmax(each, other.spreads.get(key, each)) for key, each in one.spreads.items()}
    losses = {step: max(each, other.losses.get(step, each)) for step, each in one.losses.items()}
    rate, chaotic = max(one.rate, other.rate), {**other.chaotic, **one.chaotic}
    return dataclasses.replace(one, spreads=spreads, losses=losses, rate=rate, chaotic=chaotic)


def measure_both(
    a: RecordedRun, of_a: Sequence[RecordedRun], b: RecordedRun, of_b: Sequence[RecordedRun], pairing: Pairing
) -> Yardstick:
    """Measures what perturbations did to both runs, or to the one that was run again.

    Args:
        a: One run.
        of_a: Its perturbed reruns.
        b: The other run.
        of_b: The perturbed reruns of `b`.
        pairing: The pairing of their tensors.
    """
    sides = ((a, of_a, 0), (b, of_b, 1))
    found = functools.reduce(coarser, [measure(run, reruns, pairing, side) for run, reruns, side in sides if reruns])
    if of_b and rounds_more(b, a):
        found = dataclasses.replace(found, unit=np.maximum(found.unit, coarsest_roundoff(b.header)))
    return found


def rounds_more(one: RecordedRun, other: RecordedRun) -> bool:
    """Returns whether one run has fewer digits than another, such as bf16 compared with float32.

    Args:
        one: One run.
        other: The other run.
    """
    return coarsest_roundoff(one.header) > coarsest_roundoff(other.header)


def _root_mean_square(values: Sequence[float]) -> float:
    """Returns the root mean square of values; 0 if there are none."""
    return math.sqrt(sum(value * value for value in values) / len(values)) if values else 0.0
