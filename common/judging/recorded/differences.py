"""How far apart tensors are in two recorded runs, relative to how far rounding moves them."""

import dataclasses
import math

import numpy as np

from samestep.common.judging.recorded.pairing import Pairing
from samestep.common.request import UNIT_ROUNDOFF
from samestep.common.steps.record import Phase, RecordHeader
from samestep.common.steps.recorded_run import Sums

THRESHOLD = 10.0
"""How many yardsticks a difference must exceed to be more than rounding. Of 500 healthy pairs
(`benchmarks/judging/alarms.py`), the worst of those judged the same reaches 3.68 yardsticks."""
FLOAT64 = 1e-10
"""The yardstick of a float64 record, relative to the norm: a thousand times the difference between healthy pairs."""
DTYPES = {"bfloat16": "bf16", "float16": "fp16"}
"""The spelling of a dtype in a record -> its spelling in `UNIT_ROUNDOFF`."""
LINE = 2.0**12
"""The most numbers that are projected in one sum. A larger tensor is projected row by row and then column by column."""
_NOTHING, _FINITE, _INFINITE, _NO_NUMBER = range(4)
"""The kinds of content of a tensor: nothing or zeros, finite numbers, an infinite number, or NaN."""


@dataclasses.dataclass(frozen=True, eq=False)
class RoundingScale:
    """The scale by which differences are divided.

    Attributes:
        rounding: For each tensor, the norm of the difference that rounding makes.
        same: The largest multiple of `rounding` up to which a difference is rounding.
        different: The multiple above which it is more than rounding. Between the two, it cannot be decided.
    """

    rounding: np.ndarray
    same: float = THRESHOLD
    different: float = THRESHOLD


@dataclasses.dataclass(frozen=True, eq=False)
class ComparedTensors:
    """The compared tensors of one phase of a step.

    Attributes:
        one: What A recorded of them.
        other: What B recorded of them.
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
        """Whether each tensor certainly differs, including tensors for which only one run has numbers."""
        return (self.times > self.scale.different) | (np.isinf(self.apart) & ~self.is_broken)

    @property
    def is_unsure(self) -> np.ndarray:
        """Whether each tensor may differ."""
        return (self.times > self.scale.same) & ~self.differs

    @property
    def apart_most(self) -> tuple[bool, np.ndarray]:
        """Whether any tensor certainly differs, and which ones do; if none does, which ones may."""
        is_certain = bool(self.differs.any())
        return is_certain, self.differs if is_certain else self.is_unsure

    @property
    def is_broken(self) -> np.ndarray:
        """Whether each tensor holds an infinity or NaN in at least one of the two runs."""
        return np.any([~np.isfinite(sums.square) & (sums.bits != 0) for sums in (self.one, self.other)], axis=0)


def floor(sums: Sums, pairing: Pairing, phase: Phase) -> np.ndarray | float:
    """Returns the norm that a tensor's gradient would have if it were as large as the gradients of the model on average.

    The true gradient of a key bias is zero: what it holds is rounding of larger numbers that cancel.

    Args:
        sums: The recorded sums of the tensors.
        pairing: The pairing of the tensors.
        phase: What the sums are of.
    """
    if phase == "weight":
        return 0.0
    sizes, square = pairing.sizes, finite(sums.square)
    trained = pairing.are_parameters & (square > 0)
    size = float(trained @ sizes)
    return np.sqrt(float(trained @ square) / size * sizes) if size else 0.0


def of_projecting(norm: np.ndarray, pairing: Pairing, phase: Phase) -> np.ndarray:
    """Returns how far apart rounding puts projections of equal weights; 0 for weights that reruns perturb, as reruns show theirs.

    After k of n numbers of size r, the sum is about r sqrt(k), and the next addition rounds it by u / sqrt(3) of that. In total
    that is u sqrt(n / 6) of the norm r sqrt(n), and sqrt(2) times as much between two runs that add in different orders, as XLA
    does.

    Args:
        norm: The norm of each tensor.
        pairing: The pairing of the tensors.
        phase: What the norms are of.
    """
    added = np.maximum(np.minimum(pairing.sizes, LINE), 2 * np.sqrt(pairing.sizes))
    are_unmoved = ~pairing.are_parameters & (phase == "weight")
    return np.where(are_unmoved, UNIT_ROUNDOFF["float32"] * np.sqrt(added / 3), 0.0) * norm


def with_layers(rounding: np.ndarray, pairing: Pairing) -> np.ndarray:
    """Returns the rounding of gradients, where each number of a bias rounds by at least as much as one of its layer's weights.

    If the terms d of a bias cancel, as +1 and -1 do, their sum is small, but each addition rounds by a unit of the partial sum.
    Reordering the examples shows that. A rerun does not, because it adds the same terms in the same order: if they hardly depend
    on the weights, such as 1 / n, every bit is the same. The gradient of a weight is the sum of d * x. In hidden layers x depends
    on the weights, so these terms change in their last bits, and reruns show the rounding of their sum. Initialization and
    normalization keep x at about 1, so both sums have terms of one size, and therefore roundings of one size.

    Args:
        rounding: How far rounding moves each gradient, as shown by reruns.
        pairing: The pairing of the tensors.
    """
    biases, weights = pairing.of_same_terms
    if len(biases):
        rounding = rounding.copy()
        np.maximum.at(rounding, biases, rounding[weights] * np.sqrt(pairing.sizes[biases] / pairing.sizes[weights]))
    return rounding


def finite(numbers: np.ndarray) -> np.ndarray:
    """Returns the numbers with zeros in place of those that are not finite."""
    is_finite = np.isfinite(numbers)
    return numbers if is_finite.all() else np.where(is_finite, numbers, 0.0)


def roundoff(dtype: str) -> float:
    """Returns the unit roundoff of a dtype; that of float32 for a dtype that is not used for training.

    Args:
        dtype: As a record spells it, such as "bfloat16".
    """
    return UNIT_ROUNDOFF.get(DTYPES.get(dtype, dtype), UNIT_ROUNDOFF["float32"])


def roundoff_of_weights(header: RecordHeader) -> float:
    """Returns the unit roundoff of the least precise dtype in which a run keeps weights.

    Args:
        header: The header of its record.
    """
    return max((roundoff(each.dtype) for each in header.tensors if each.is_trained), default=roundoff(""))


def coarsest_roundoff(header: RecordHeader) -> float:
    """Returns the unit roundoff of the least precise dtype in which a run keeps weights or computes products.

    Args:
        header: The header of its record.
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
    """Returns how far apart tensors are, as an estimate of the norm of their difference.

    It is infinite where only one run has numbers, or only one has an infinity, or only one has NaN.

    Args:
        one: The recorded sums of one run.
        other: The recorded sums of the other run.
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
    """Returns differences as multiples of those that rounding makes; 0 where a multiple is unknown.

    Args:
        apart: The difference of each tensor.
        rounding: The difference that rounding makes in each tensor.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        times = apart / rounding
    times[(apart == 0) | np.isnan(times)] = 0.0
    return times


def times_rounding(apart: float, rounding: float) -> float:
    """Returns a difference as a multiple of that which rounding makes; infinity if rounding makes none.

    Args:
        apart: The difference.
        rounding: The difference that rounding makes.
    """
    if not apart:
        return 0.0
    return apart / rounding if rounding else math.inf


def _kind(sums: Sums) -> np.ndarray:
    """Returns the kind of content of each tensor."""
    square = sums.square
    kinds = np.where(np.isfinite(square), _FINITE, np.where(np.isnan(square), _NO_NUMBER, _INFINITE))
    kinds[(square == 0) | (np.isnan(square) & (sums.bits == 0))] = _NOTHING
    return kinds
