"""Looks for a rerun in which rounding has the effect seen in B, before a difference without a known cause is reported.

Rarely, a number lies within rounding of a threshold (ReLU at 0, a maximum), and another order of sums puts it on the other side.
Such a number of A tips over in about a third of the perturbed reruns, so the probability that none of 20 shows it is 0.0003.
"""

import contextlib
import dataclasses
from collections.abc import Sequence

from samestep.common.errors import ParityFailed, SamestepError
from samestep.common.judging.recorded.judge import judge
from samestep.common.judging.recorded.repeating import (
    draws_alike,
    judge_by_reruns,
    repeats_itself,
    rounds_finely,
    starts_alike,
)
from samestep.common.judging.recorded.verdict import RecordedVerdict, place
from samestep.common.steps.recorded_run import RecordedRun
from samestep.experiments.recording.reruns import SEEDS, NotRepeated, Reruns

AGAIN = "again"
"""The name of reruns that are made a second time."""
_IN_FLOAT64 = (
    "{}: B is farther from A than moving A's weights in their last bit shows, and no farther than the two are from their own "
    "steps in float64, in which both take the same ones: numbers cancel there, such as 1 - p of a saturated softmax"
)
MORE_SEEDS = range(4, 20)
"""The seeds of further reruns of A, made before a difference without a known cause is reported."""


def try_further(
    a: Reruns,
    b: Reruns,
    runs_of_a: Sequence[RecordedRun],
    runs_of_b: Sequence[RecordedRun],
    verdict: RecordedVerdict,
    length: int,
) -> RecordedVerdict:
    """Makes one rerun after the other, of A and then of B, until one tips over as well; returns the resulting verdict.

    Each takes the steps up to the one that differs. Only a rerun that tips over takes the steps after it.

    Args:
        a: The first run.
        b: The second run, which is compared with A.
        runs_of_a: The existing reruns of A; none if it cannot be run again.
        runs_of_b: The existing reruns of B.
        verdict: The verdict with these reruns.
        length: The most steps of reruns.
    """
    of_a, of_b = [*runs_of_a], [*runs_of_b]
    attempts = [(a, of_a, seed) for seed in MORE_SEEDS if of_a]
    attempts += [(b, of_b, seed) for seed in (SEEDS if of_a else MORE_SEEDS)]
    for side, made, seed in attempts:
        if not _is_open(verdict):
            break
        assert verdict.first is not None
        before, until = [*made], max(verdict.first.step, 0) + 1
        for num_steps in dict.fromkeys((until, length)):
            rerun = _rerun(side, seed, num_steps, before)
            if not rerun:
                break
            made[:] = [*before, *rerun]
            verdict = judge_by_reruns(a.run, b.run, of_a, of_b)
            if verdict.first is not None and verdict.first.step < until:
                break
    return verdict


def try_float64(
    a: Reruns, b: Reruns, runs_of_a: Sequence[RecordedRun], verdict: RecordedVerdict, length: int
) -> RecordedVerdict:
    """Runs both in float64 from A's weights if a difference still has no known cause; returns the resulting verdict.

    No perturbed rerun shows what float32 loses where large numbers cancel, if these numbers hardly depend on the weights. The
    gradient of a saturated softmax is 1 - p. Each p is kept to 6e-8, so if 1 - p is 1e-5, it is rounded by up to 0.6 %; moving
    the weights in their last bit moves 1 - p by far less, and it is rounded to the same number. The distances of A and B from
    their own steps in float64 show it; B may cancel other numbers than A. The difference is rounding if B is no farther from A
    than these allow, and if both take the same steps in float64.

    Args:
        a: The first run.
        b: The second run, which is compared with A.
        runs_of_a: The perturbed reruns of A.
        verdict: The verdict with these reruns.
        length: The number of steps of reruns.
    """
    is_known = any(cause.name != "other_loss" for cause in verdict.causes)  # this cause only rules others out
    first, is_open = verdict.first, _is_open(dataclasses.replace(verdict, causes=()))
    if first is None or verdict.kind not in ("named", "unnamed") or is_known or not is_open:
        return verdict
    with contextlib.suppress(SamestepError):
        a.require_repeated(length)
        weights = a.initial_weights()
        exact = a.in_float64(length, weights)
        if not starts_alike(a.run, exact) or not draws_alike(a.run, exact, first.step):
            return verdict
        exact_of_b = b.in_float64(length, weights)
        decided = judge(exact, exact_of_b)
        if decided.exit_code == ParityFailed.exit_code:
            return verdict
        rounded = [exact_of_b] if rounds_finely(b.run, exact_of_b, first.step) else []
        found = judge_by_reruns(a.run, b.run, runs_of_a, exact=[exact], exact_of_b=rounded)
        if found.exit_code != ParityFailed.exit_code:
            said = found if decided.exit_code else decided
            return dataclasses.replace(said, notes=(*said.notes, _IN_FLOAT64.format(place(first))))
    return verdict


def _is_open(verdict: RecordedVerdict) -> bool:
    """Returns whether the first difference may be a number that tipped over."""
    return verdict.may_be_tipped and verdict.need != "steps"


def _rerun(side: Reruns, seed: int, num_steps: int, before: Sequence[RecordedRun]) -> list[RecordedRun]:
    """Returns a list with a rerun; an empty one if the command cannot be run again, or then takes other steps.

    Args:
        side: The run.
        seed: The seed of the perturbation.
        num_steps: The number of steps.
        before: The existing reruns.
    """
    with contextlib.suppress(SamestepError):
        return perturbed(side, [seed], num_steps, before)
    return []


def perturbed(
    side: Reruns, seeds: Sequence[int], num_steps: int, before: Sequence[RecordedRun] = ()
) -> list[RecordedRun]:
    """Returns reruns of a side. They may have other examples, if the same weights reproduce the same examples.

    Args:
        side: The run.
        seeds: The seeds, one for each rerun.
        num_steps: The number of steps of each.
        before: The existing reruns; if one has other examples, examples are known to be computed from the weights.

    Raises:
        NotRepeated: One was given other examples, or started from other weights.
        SamestepError: A rerun failed.
    """
    runs = side.perturbed(seeds, num_steps)
    are_computed = not all(repeats_itself(side.run, each) for each in before)
    for seed, run in zip(seeds, runs, strict=True):
        if repeats_itself(side.run, run):
            continue
        is_known = starts_alike(side.run, run)
        if is_known and not are_computed:
            (again,) = side.perturbed([seed], num_steps, AGAIN)
            is_known = are_computed = repeats_itself(run, again)
        if not is_known:
            raise NotRepeated("run again, it was given other examples", is_random=True)
    return runs
