"""Judges two records, with reruns of the first one's command as the yardstick."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from samestep.common.errors import SamestepError, Unavailable
from samestep.common.judging.recorded.judge import judge, judge_unless_rounded
from samestep.common.judging.recorded.measured import MeasuredYardstick, coarser, measure, repeats_itself
from samestep.common.judging.recorded.pairing import pair
from samestep.common.judging.recorded.verdict import RecordedVerdict
from samestep.common.judging.recorded.yardstick import Derived, Yardstick, coarsest_roundoff
from samestep.common.steps.recorded_run import RecordedRun
from samestep.experiments.recording.reruns import Reruns, count_steps
from samestep.experiments.recording.tipping import SEEDS, try_further

STEPS = 20
"""How many steps of the perturbed reruns are taken, unless asked otherwise."""


@dataclasses.dataclass(frozen=True)
class Diffed:
    """Two records and what is said of them.

    Attributes:
        verdict: What is said.
        a: The first record, as it was judged.
        b: The second.
        notes: The notes on the reruns.
    """

    verdict: RecordedVerdict
    a: Reruns
    b: Reruns
    notes: tuple[str, ...] = ()


def diff(a: Reruns, b: Reruns, num_steps: int) -> Diffed:
    """Judges two records.

    Args:
        a: The run that the other is held against, and what runs it again.
        b: The other.
        num_steps: How many steps perturbed reruns take, at most.

    Raises:
        ConfigError: They have nothing in common, or are damaged.
    """
    is_float64 = a.run.header.is_float64
    first = judge(a.run, b.run) if is_float64 else judge_unless_rounded(a.run, b.run)
    if first is not None and _is_settled(a, first):
        return Diffed(first, a, b)
    if why := a.why_not():
        first = first or judge(a.run, b.run)
        return Diffed(first, a, b, (f"A cannot be run again, so nothing measured how far rounding takes it: {why}.",))
    length = min(count_steps(side.run, num_steps) for side in (a, b))
    try:
        return _with_reruns(a, b, length)
    except SamestepError as error:
        first = first or judge(a.run, b.run)
        return Diffed(
            first, a, b, (f"A could not be run again, so nothing measured how far rounding takes it: {error}",)
        )


def judge_as_kept(a: Reruns, b: Reruns) -> tuple[Diffed, Yardstick]:
    """Judges two records and runs nothing: by the reruns that are kept in A, or by unit roundoffs if there are none.

    Args:
        a: The run that the other is held against.
        b: The other.

    Raises:
        ConfigError: They have nothing in common, or are damaged.
    """
    pairing = pair(a.run, b.run)
    runs = [] if a.run.header.is_float64 else a.kept()
    if runs and all(repeats_itself(a.run, run) for run in runs):
        measured = measure(a.run, runs, pairing)
        rounds_more = _rounds_more(b, a)
        if of_b := [run for run in b.kept() if repeats_itself(b.run, run)] if rounds_more else []:
            measured = _with_roundings_of(b, of_b, measured)
        if of_b or not rounds_more:
            return Diffed(judge(a.run, b.run, measured, pairing), a, b), measured
    derived = Derived.between(a.run.header, b.run.header, pairing)
    lacks = f"{'B' if runs else 'A'} holds no reruns, so nothing measured how far rounding takes it"
    notes = () if a.run.header.is_float64 else (lacks,)
    return Diffed(judge(a.run, b.run, derived, pairing), a, b, notes), derived


def _is_settled(a: Reruns, first: RecordedVerdict) -> bool:
    """Returns whether no rerun could change the verdict."""
    if a.run.header.is_float64:
        is_early = first.first is not None and first.first.step <= 0
        return first.kind == "same" or (is_early and first.kind != "unknown")
    return (first.kind == "same" and not first.worst) or first.is_exact  # before it no step was rounded otherwise


def _with_reruns(a: Reruns, b: Reruns, length: int) -> Diffed:
    pairing = pair(a.run, b.run)
    runs = a.perturbed(SEEDS, length)
    if not all(repeats_itself(a.run, run) for run in runs):
        verdict = judge(a.run, b.run, None, pairing)
        if not verdict.is_exact:
            verdict = dataclasses.replace(verdict, kind="unknown", need="seed", causes=())
        return Diffed(verdict, a, b, ("A does not repeat itself: run again, it was given other examples.",))
    measured = measure(a.run, runs, pairing)
    verdict = judge(a.run, b.run, measured, pairing)
    # Examples in fewer digits are no other ones; whether a loss that is off says so is for B's own rounding to decide.
    is_exact = verdict.is_exact and verdict.first is not None and verdict.first.phase != "data"
    if is_exact or verdict.kind in ("same", "amplified") or not _rounds_more(b, a):
        return Diffed(try_further(a, b, runs, verdict, length), a, b)
    of_b, why = list[RecordedRun](), b.why_not()
    if not why:
        try:
            of_b = [run for run in b.perturbed(SEEDS, length) if repeats_itself(b.run, run)]
            why = "" if of_b else "run again, it was given other examples."
        except SamestepError as error:
            why = str(error)
    if why:
        noted = f"nothing measured how far B's rounding takes it: {why}"
        return Diffed(judge(a.run, b.run, None, pairing), a, b, (noted,))
    return Diffed(judge(a.run, b.run, _with_roundings_of(b, of_b, measured), pairing), a, b)


def _rounds_more(one: Reruns, other: Reruns) -> bool:
    """Returns whether one run has fewer digits than another, as one in bf16 has beside one in float32."""
    return coarsest_roundoff(one.run.header) > coarsest_roundoff(other.run.header)


def _with_roundings_of(b: Reruns, of_b: Sequence[RecordedRun], measured: MeasuredYardstick) -> MeasuredYardstick:
    """Returns the yardstick of A and of a B that rounds more."""
    both = coarser(measured, measure(b.run, of_b, measured.pairing, 1))
    return dataclasses.replace(both, unit=np.maximum(both.unit, coarsest_roundoff(b.run.header)))


def in_float64(sides: Sequence[Reruns]) -> list[Reruns]:
    """Runs both commands again in float64.

    Args:
        sides: A and B.

    Raises:
        SamestepError: One cannot be run again.
    """
    length = min(count_steps(side.run) for side in sides)
    found = []
    for side in sides:
        if side.run.header.is_float64:
            found.append(side)
            continue
        if why := side.why_not():
            raise Unavailable(f"{side.name} cannot be run again in float64: {why}.")
        run = side.in_float64(length)
        found.append(dataclasses.replace(side, run=run, directory=Path(run.name)))
    return found
