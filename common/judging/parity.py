"""Judges whether two runs took the same steps, by comparing every step and not only the end."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from samestep.common.errors import percent
from samestep.common.steps.log import Log

LOSS_BOUND = {"float64": 1e-12, "float32": 1e-5}
WEIGHT_BOUND = {"float64": 1e-10, "float32": math.inf}
"""Float32 weights are not bounded: Adam divides rounding noise by itself wherever a gradient is nearly zero."""
LEAST_LOSS = {"float64": 0.0, "float32": 0.1}
"""The loss below which a deviation is absolute, because a small loss is a difference of numbers near one. This also holds for
a loss that was computed in two bytes, whose bound `judging/roundoff.py` derives."""

COMPILED = "compiled, not trained"
"""The reason given for a run that has no steps and was compared with nothing."""


class Attribution(NamedTuple):
    """Why a run did not pass: the fields `reason` and `blame` of `Parity`."""

    reason: str
    blame: str = ""


@dataclasses.dataclass(frozen=True)
class Parity:
    """The verdict on one run.

    Attributes:
        reference: What the run was compared with.
        steps: How many steps were compared, counted from the first; fewer than the run took if the reference ends earlier.
        max_relative_loss: The largest deviation of the loss at any of them, relative (in float32: to at least 0.1).
        max_absolute_weight: The largest deviation of any weight after the last step; None if the reference's weights
            after that step are not known, e.g. because it ends earlier. Either deviation is None if it is not finite.
        passed: Whether everything that was compared agrees; None if nothing was.
        reason: Why it did not pass, was not judged, or passed although its curve is off; "" if it simply passed.
        first_bad_step: The first step (from 0) whose loss deviates too far; None if none does.
        deviations: The deviation of the loss at each step that was compared, relative as above; None where it is not finite.
            Older results have none.
        is_amplified: Whether the curve is off by rounding alone: it passed by single steps, or in float64.
        amplification: By how much a small relative change of the initial weights changes the losses of the reference, relative
            to that change; None if it was not measured.
        loss_bound: The largest allowed deviation of a loss; None if it is that of the dtype.
        blame: For a run that did not pass although its strategy is correct: how its model differs from the reference's, as a
            clause that begins the reason; "" if the strategy may be wrong.
    """

    reference: str
    steps: int
    max_relative_loss: float | None
    max_absolute_weight: float | None
    passed: bool | None
    reason: str = ""
    first_bad_step: int | None = None
    deviations: tuple[float | None, ...] = ()
    is_amplified: bool = False
    amplification: float | None = None
    loss_bound: float | None = None
    blame: str = ""

    @property
    def attribution(self) -> Attribution:
        """Why the run did not pass, and whether its model is to blame."""
        return Attribution(self.reason, self.blame)


def bound_of(parity: Parity, dtype: str) -> float:
    """Returns the largest deviation of a loss that a verdict allowed.

    Args:
        parity: The verdict.
        dtype: The dtype of the run.
    """
    return parity.loss_bound or LOSS_BOUND[dtype]


def not_judged(reason: str) -> Parity:
    """Makes the verdict on a run that was not compared with anything."""
    return Parity("", 0, None, None, None, reason)


def _size(deviation: float) -> float:
    """Sort key that treats NaN as infinity; plain `max` depends on argument order when NaN is present."""
    return math.inf if math.isnan(deviation) else deviation


def _finite(deviation: float) -> float | None:
    return deviation if math.isfinite(deviation) else None


def spell_apart(one: float, other: float) -> tuple[str, str]:
    """Writes two numbers with nine digits, or with as many more as it takes to tell them apart.

    Args:
        one: A number.
        other: The number to tell it apart from.
    """
    digits = next((digits for digits in range(9, 17) if f"{one:.{digits}g}" != f"{other:.{digits}g}"), 17)
    return f"{one:.{digits}g}", f"{other:.{digits}g}"


def _deviations(
    params: Mapping[str, np.ndarray], reference_params: Mapping[str, np.ndarray] | None
) -> dict[str, float]:
    """Returns the largest deviation of each parameter; without a reference, NaN for one that is not finite and 0 for the rest."""
    if reference_params is None:
        return {name: 0.0 if np.isfinite(value).all() else math.nan for name, value in params.items()}
    if {n: v.shape for n, v in params.items()} != {n: v.shape for n, v in reference_params.items()}:
        raise ValueError("the parameters differ in name or shape from the reference's")
    return {
        name: float(np.abs(value.astype(np.float64) - reference_params[name]).max(initial=0.0))
        for name, value in params.items()
    }


def deviation(loss: float, wanted: float, dtype: str) -> float:
    """Returns the relative deviation of a loss; NaN if it is not finite.

    Args:
        loss: The loss of one step.
        wanted: The reference's loss at that step.
        dtype: The dtype of the run.
    """
    if loss == wanted and math.isfinite(loss):
        return 0.0
    return abs(loss - wanted) / max(abs(wanted), LEAST_LOSS[dtype])


def judge(
    reference: str,
    dtype: str,
    first_step: int,
    losses: Sequence[float],
    reference_losses: Sequence[float],
    params: Mapping[str, np.ndarray],
    reference_params: Mapping[str, np.ndarray] | None,
    noise: float = 0.0,
    loss_bound: float | None = None,
) -> Parity:
    """Compares a run with its reference.

    Args:
        reference: The reference's name.
        dtype: The dtype of the run; it sets the bounds.
        first_step: The number of the first loss.
        losses: The loss of each compared step.
        reference_losses: The reference's losses at the same steps.
        params: Weights after the run's last step, by neutral name.
        reference_params: The same names and shapes; None if the reference does not know them.
        noise: How far rounding alone may have moved a weight, where that is more than the bound.
        loss_bound: The largest allowed deviation of a loss; that of the dtype unless given.

    Raises:
        ValueError: The two differ in length, names or shapes and cannot be compared.
    """
    if len(losses) != len(reference_losses):
        raise ValueError(f"{len(losses)} losses against {len(reference_losses)} of the reference")
    deviations = [deviation(loss, wanted, dtype) for loss, wanted in zip(losses, reference_losses, strict=True)]
    weights = _deviations(params, reference_params)
    worst_name = max(weights, key=lambda name: _size(weights[name]))
    worst_weight = weights[worst_name]
    allowed = loss_bound or LOSS_BOUND[dtype]
    bad = next((step for step, d in enumerate(deviations) if not d <= allowed), None)
    reason = ""
    if bad is not None:
        seen, wanted = spell_apart(losses[bad], reference_losses[bad])
        apart = f"a relative deviation of {deviations[bad]:.1e} where {allowed:.2g} is allowed"
        reason = f"the loss of step {first_step + bad} is {seen} instead of {wanted}, {apart}"
    elif not (worst_weight <= (bound := max(WEIGHT_BOUND[dtype], noise)) and math.isfinite(worst_weight)):
        reason = f"after the last step {worst_name} is off by {worst_weight:.1e} (allowed {bound:.0e})"
    return Parity(
        reference,
        len(losses),
        _finite(max(deviations, key=_size, default=0.0)),
        None if reference_params is None else _finite(worst_weight),
        not reason,
        reason,
        None if bad is None else first_step + bad,
        tuple(map(_finite, deviations)),
        loss_bound=loss_bound,
    )


def judge_batches(parity: Parity, log: Log, reference: Log) -> Parity:
    """Judges whether a run trained on the reference's examples, where both logs record them; the loss may hardly show it.

    Args:
        parity: The verdict on its losses.
        log: The log of the run.
        reference: The log of the reference.
    """
    wanted = {step.number: step.batch for step in reference.steps()}
    for step in log.steps():
        if None not in (step.batch, other := wanted.get(step.number)) and step.batch != other:
            reason = f"step {step.number} trained on different examples from the reference's"
            return dataclasses.replace(parity, passed=False, reason=f"{reason}{parity.reason and f': {parity.reason}'}")
    return parity


def relative_distance(seen: Mapping[str, np.ndarray], wanted: Mapping[str, np.ndarray]) -> float:
    """Returns the distance of some arrays from the wanted ones, relative to the norm of all wanted ones together.

    Args:
        seen: The arrays, by name.
        wanted: The wanted arrays, with the same names and shapes; some may be missing.
    """
    away = sum(float(np.square(seen[name].astype(np.float64) - value).sum()) for name, value in wanted.items())
    length = sum(float(np.square(value).sum()) for value in wanted.values())
    return math.sqrt(away / length) if length else math.inf if away else 0.0


def judge_statistics(parity: Parity, away: float, allowed: float) -> Parity:
    """Judges the running statistics of a run in float32 or two bytes, which `judge` leaves unbounded, like weights.

    Args:
        parity: The verdict on its losses; one that did not pass is returned unchanged.
        away: The distance from the reference's statistics after the last step, relative to their length.
        allowed: The largest allowed distance.
    """
    if not parity.passed or away <= allowed:
        return parity
    far = f"off by {percent(away, 1)} of their length (allowed {percent(allowed, 1)})"
    reason = f"after the last step the running statistics are {far}"
    return dataclasses.replace(parity, passed=False, reason=reason)
