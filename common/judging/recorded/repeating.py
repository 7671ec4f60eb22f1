"""Judges by reruns, and checks that they are valid: a command that is run again must still take the steps of its record."""

from collections.abc import Callable, Sequence

import numpy as np

from samestep.common.errors import ConfigError
from samestep.common.judging.recorded.differences import apart_of
from samestep.common.judging.recorded.hashes import are_other
from samestep.common.judging.recorded.judge import judge, judge_unless_rounded
from samestep.common.judging.recorded.pairing import like, pair, places_in
from samestep.common.judging.recorded.verdict import TIPPED, RecordedVerdict
from samestep.common.judging.recorded.yardstick import coarser, measure, measure_both
from samestep.common.steps.record import Phase
from samestep.common.steps.recorded_run import RecordedRun

FINE = 2.0**-16
"""How far float32 may move a gradient, relative to its norm, where numbers cancel. Formats of fewer digits move it farther: fp16
and TF32 round each number by 2**-12. A float64 rerun of the script replaces them."""
MOST_PERTURBED = 0.02
"""The largest distance that a perturbation moves weights, relative to their norm: that of bfloat16 moves them by 0.004."""


def judge_by_reruns(
    a: RecordedRun,
    b: RecordedRun,
    of_a: Sequence[RecordedRun],
    of_b: Sequence[RecordedRun] = (),
    exact: Sequence[RecordedRun] = (),
    exact_of_b: Sequence[RecordedRun] = (),
) -> RecordedVerdict:
    """Judges two recorded runs by perturbed reruns of both, or of the one that was run again.

    Args:
        a: The run to compare with.
        b: The run that is compared.
        of_a: Perturbed reruns of A.
        of_b: Perturbed reruns of B.
        exact: A's steps in float64, whose distance from A shows everything that was rounded in A.
        exact_of_b: B's steps in float64.

    Raises:
        ConfigError: The runs have no step or no tensor in common.
    """
    pairing = pair(a, b)
    yardstick = measure_both(a, of_a, b, of_b, pairing)
    for run, found, side in ((a, exact, 0), (b, exact_of_b, 1)):
        yardstick = coarser(yardstick, measure(run, found, pairing, side)) if found else yardstick
    return judge(a, b, yardstick)


def judge_again(
    run: RecordedRun, again: RecordedRun, perturb: Callable[[], Sequence[RecordedRun]]
) -> RecordedVerdict | None:
    """Judges whether a rerun took the steps of its record; returns None if the two have nothing in common.

    Args:
        run: The recorded run.
        again: The first steps of its command, run again.
        perturb: Runs it again from perturbed weights. This is needed where another machine, or another order of sums in
            threads, rounds differently and a step amplifies that: Adam's first step moves a number by the sign of its gradient.
    """
    try:
        verdict = judge_unless_rounded(run, again)
    except ConfigError:
        return None
    if verdict is not None and (verdict.first is None or verdict.is_exact):
        return verdict
    return judge_by_reruns(again, run, perturb())


def repeats_itself(a: RecordedRun, rerun: RecordedRun) -> bool:
    """Returns whether a rerun started from the run's weights, apart from the perturbation, and was given the run's examples.

    Args:
        a: The run.
        rerun: The first steps of its command, run again.
    """
    hashes_differ = are_other(a.header, rerun.header)
    return starts_alike(a, rerun) and all(
        hashes_differ or one.rows == other.rows for one, other in zip(a.steps, rerun.steps, strict=False)
    )


def starts_alike(a: RecordedRun, rerun: RecordedRun) -> bool:
    """Returns whether a rerun started from the run's weights, apart from the perturbation.

    Args:
        a: The run.
        rerun: The first steps of its command, run again.
    """
    found = _apart(a, rerun, -1, "weight")
    return found is None or bool((found[0] <= MOST_PERTURBED * found[1]).all())


def draws_alike(a: RecordedRun, exact: RecordedRun, number: int) -> bool:
    """Returns whether a step in float64 is close to the run's; a step with other random numbers, e.g. for dropout, is not.

    Args:
        a: The run.
        exact: The first steps of its command in float64.
        number: The step.
    """
    return _unlike(a, exact, number) <= TIPPED


def draws_others(run: RecordedRun, again: RecordedRun, number: int) -> bool:
    """Returns whether a step differs when the run is repeated, by more than a comparison that tips over would explain.

    Args:
        run: The run.
        again: The same command, run once more.
        number: The step.
    """
    return TIPPED < _unlike(run, again, number) < np.inf


def _unlike(a: RecordedRun, rerun: RecordedRun, number: int) -> float:
    """Returns how far apart the gradients of a step are, relative to their norm; NaN if either run did not record them."""
    found = _apart(a, rerun, number, "gradient")
    apart, norm = map(float, map(np.linalg.norm, found or (np.nan, np.nan)))
    return apart / norm if norm else np.inf * apart if apart else 0.0


def rounds_finely(run: RecordedRun, exact: RecordedRun, number: int) -> bool:
    """Returns whether a step lost no more of its gradients than float32 does, which rules out formats of fewer digits.

    Args:
        run: The run.
        exact: The first steps of its command in float64.
        number: The step.
    """
    if (found := _apart(run, exact, number, "gradient")) is None:
        return False
    is_more_than_rounding = found[1] > np.finfo("float32").eps * np.linalg.norm(found[1])  # else all of it may cancel
    return not (is_more_than_rounding & (found[0] > FINE * found[1])).any()


def _apart(a: RecordedRun, rerun: RecordedRun, number: int, phase: Phase) -> tuple[np.ndarray, np.ndarray] | None:
    """Returns how far a rerun is from a step of a run, and the norms of the run's tensors; None if either has no sums."""
    sides = [next((step.sums for step in run.steps if step.number == number), None) for run in (a, rerun)]
    if not all(sides):
        return None
    one, other = (sums[phase] for sums in sides if sums)
    return apart_of(one, like(other, one, places_in(a, rerun))), np.nan_to_num(one.norm)
