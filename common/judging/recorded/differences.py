"""How far tensors are apart in two recorded runs, relative to how far rounding moves them."""

import dataclasses
import math

import numpy as np

from samestep.common.judging.recorded.pairing import Pairing
from samestep.common.request import UNIT_ROUNDOFF
from samestep.common.steps.record import Phase, RecordHeader
from samestep.common.steps.recorded_run import Sums

THRESHOLD = 10.0
"""How many times the yardstick a difference must be to be more than rounding. Of 500 healthy pairs
(`benchmarks/judging/alarms.py`), the worst that are the same have 3.68."""
FLOAT64 = 1e-10
"""The yardstick of a float64 record, relative to the norm: a thousand times the difference of healthy pairs."""
DTYPES = {"bfloat16": "bf16", "float16": "fp16"}
"""How a record spells a dtype -> how `UNIT_ROUNDOFF` does."""
LINE = 2.0**12
"""The most numbers that are projected in one sum. A larger tensor is projected row by row and then column by column."""
_NOTHING, _FINITE, _INFINITE, _NO_NUMBER = range(4)
"""What a tensor holds: nothing or zeros, finite numbers, an infinite number, or NaN."""


@dataclasses.dataclass(frozen=True, eq=False)
class RoundingScale:
    """What differences are divided by.

    Attributes:
        rounding: For each tensor, the norm of the difference that rounding makes.
        same: Up to how many times that a difference is rounding.
        different: From how many times on it is more than rounding. Between the two, it cannot be decided.
    """

    rounding: np.ndarray
    same: float = THRESHOLD
    different: float = THRESHOLD


@dataclasses.dataclass(frozen=True, eq=False)
class ComparedTensors:
    """The tensors of a phase of a step, compared.

    Attributes:
        one: In A.
        other: In B.
        scale: What differences are divided by.
        apart: The norm of the difference of each tensor.
        times: The difference of each tensor, as a multiple of the difference that rounding makes.
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
    def apart_most(self) -> tuple[bool, np.ndarray]:
        """Whether any tensor differs for certain, and which ones do; if none does, which ones may."""
        is_certain = bool(self.differs.any())
        return is_certain, self.differs if is_certain else self.is_unsure

    @property
    def is_broken(self) -> np.ndarray:
        """Whether each holds, in one of the two, something infinite or not a number."""
        return np.any([~np.isfinite(sums.square) & (sums.bits != 0) for sums in (self.one, self.other)], axis=0)


def floor(sums: Sums, pairing: Pairing, phase: Phase) -> np.ndarray | float:
    """Returns the norm that a tensor's gradient would have if it were as large as the gradients of the model on average.

    The true gradient of a key bias is zero: what it holds is rounding of larger numbers that cancel.

    Args:
        sums: What was seen of the tensors.
        pairing: The pairing of the tensors.
        phase: What was seen.
    """
    if phase == "weight":
        return 0.0
    sizes, square = pairing.sizes, finite(sums.square)
    trained = pairing.are_parameters & (square > 0)
    size = float(trained @ sizes)
    return np.sqrt(float(trained @ square) / size * sizes) if size else 0.0


def of_projecting(norm: np.ndarray, pairing: Pairing, phase: Phase) -> np.ndarray:
    """Returns how far the projections of the same weights may be apart; for weights that reruns perturb, the reruns show it.

    After k of n numbers of size r, a projection has about r sqrt(k), and rounds it by u / sqrt(3). Together that is
    u sqrt(n / 6) of the norm r sqrt(n), and sqrt(2) times as much between two runs that add up in other orders, as XLA does.

    Args:
        norm: That of each tensor.
        pairing: The pairing of the tensors.
        phase: What was seen.
    """
    added = np.maximum(np.minimum(pairing.sizes, LINE), 2 * np.sqrt(pairing.sizes))
    are_unmoved = ~pairing.are_parameters & (phase == "weight")
    return np.where(are_unmoved, UNIT_ROUNDOFF["float32"] * np.sqrt(added / 3), 0.0) * norm


def with_layers(rounding: np.ndarray, pairing: Pairing) -> np.ndarray:
    """Returns the rounding of gradients; that of a bias is at least that of its layer's weights, for each of its numbers.

    Where the terms d of a bias cancel, as those of +1 and -1 do, its sum is small, but each addition rounds by a unit of what is
    added up by then. Another order of the examples shows that, and no rerun: it adds up the same terms in the same order, and
    where they hardly depend on the weights, as 1 / n does not, every bit is the same. The gradient of a weight is the sum of
    d * x. The x of hidden layers do depend on the weights, so these terms change in their last bits, and reruns show what their
    sum rounds by. With x of about 1, as initialization and normalization keep them, both sums have terms of one size, and so
    roundings of one size.

    Args:
        rounding: How far rounding moves each gradient, as reruns show it.
        pairing: The pairing of the tensors.
    """
    biases, weights = pairing.of_same_terms
    if len(biases):
        rounding = rounding.copy()
        np.maximum.at(rounding, biases, rounding[weights] * np.sqrt(pairing.sizes[biases] / pairing.sizes[weights]))
    return rounding


def finite(numbers: np.ndarray) -> np.ndarray:
    """Returns the same with zeros for what is not a finite number."""
    is_finite = np.isfinite(numbers)
    return numbers if is_finite.all() else np.where(is_finite, numbers, 0.0)


def roundoff(dtype: str) -> float:
    """Returns the unit roundoff of a dtype; that of float32 for one that nobody trains in.

    Args:
        dtype: As a record spells it, such as "bfloat16".
    """
    return UNIT_ROUNDOFF.get(DTYPES.get(dtype, dtype), UNIT_ROUNDOFF["float32"])


def roundoff_of_weights(header: RecordHeader) -> float:
    """Returns the unit roundoff of the fewest digits that a run keeps weights in.

    Args:
        header: That of its record.
    """
    return max((roundoff(each.dtype) for each in header.tensors if each.is_trained), default=roundoff(""))


def coarsest_roundoff(header: RecordHeader) -> float:
    """Returns the unit roundoff of the fewest digits that a run keeps weights in, or computes products in.

    Args:
        header: That of its record.
    """
    kept = roundoff_of_weights(header)
    return max(kept, roundoff(header.products)) if header.products else kept


def unit_of(pairing: Pairing, is_float64: bool) -> np.ndarray:
    """Returns the unit of each tensor's yardstick.

    Args:
        pairing: The pairing of the tensors.
        is_float64: Whether the records are of runs in float64.
    """
    if is_float64:
        return np.full(len(pairing.tensors), FLOAT64)
    return np.array([roundoff(each.dtype) for each in pairing.tensors])


def apart_of(one: Sums, other: Sums) -> np.ndarray:
    """Returns how far tensors are apart: the estimate of the norm of their difference.

    It is infinite where only one has numbers, or only one is infinite, or not a number.

    Args:
        one: What was seen of them in a run.
        other: In the other run.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        between = one.projections - other.projections
        difference = np.sqrt(np.einsum("ij,ij->i", between, between) / between.shape[1])
    if not np.isnan(difference).any():
        return difference
    kinds = [_kind(each) for each in (one, other)]
    difference = np.where((kinds[0] == _NOTHING) & (kinds[1] == _NOTHING), 0.0, difference)
    return np.where(np.isnan(difference), np.where(kinds[0] == kinds[1], 0.0, math.inf), difference)


def multiples(apart: np.ndarray, rounding: np.ndarray) -> np.ndarray:
    """Returns differences as multiples of what rounding makes; 0 where that is not known.

    Args:
        apart: The difference of each tensor.
        rounding: What rounding makes of it.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        times = apart / rounding
    times[(apart == 0) | np.isnan(times)] = 0.0
    return times


def times_rounding(apart: float, rounding: float) -> float:
    """Returns a difference as a multiple of what rounding makes; infinity if that is zero.

    Args:
        apart: The difference.
        rounding: What rounding makes.
    """
    if not apart:
        return 0.0
    return apart / rounding if rounding else math.inf


def _kind(sums: Sums) -> np.ndarray:
    """Returns what each tensor holds."""
    square = sums.square
    kinds = np.where(np.isfinite(square), _FINITE, np.where(np.isnan(square), _NO_NUMBER, _INFINITE))
    kinds[(square == 0) | (np.isnan(square) & (sums.bits == 0))] = _NOTHING
    return kinds
