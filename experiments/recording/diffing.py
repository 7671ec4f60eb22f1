"""Judges two records, with reruns of the first one's command as the yardstick."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from samestep.common.errors import SamestepError, Unavailable
from samestep.common.judging.recorded.judge import judge
from samestep.common.judging.recorded.measured import MeasuredYardstick, coarser, measure, repeats_itself
from samestep.common.judging.recorded.pairing import pair
from samestep.common.judging.recorded.verdict import RecordedVerdict
from samestep.common.steps.recorded_run import RecordedRun
from samestep.experiments.recording.reruns import Reruns, count_steps

SEEDS = range(4)
"""Of the perturbed reruns that every judgement has."""
MORE_SEEDS = range(4, 20)
"""Of those that are made before a difference that has no name is called one. A number that A has within rounding of a
threshold tips over in about a third of the perturbed reruns: that none of 20 shows it has a chance of 0.0003."""
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
    first = judge(a.run, b.run)
    if _is_settled(a, first):
        return Diffed(first, a, b)
    if why := a.why_not():
        return Diffed(first, a, b, (f"A cannot be run again, so nothing measured how far rounding takes it: {why}.",))
    length = min(num_steps, count_steps(a.run), count_steps(b.run))
    try:
        return _with_reruns(a, b, length)
    except SamestepError as error:
        return Diffed(
            first, a, b, (f"A could not be run again, so nothing measured how far rounding takes it: {error}",)
        )


def _is_settled(a: Reruns, first: RecordedVerdict) -> bool:
    """Returns whether no rerun could change the verdict."""
    is_early = first.first is not None and first.first.step <= 0
    if a.run.header.is_float64:
        return first.kind == "same" or (is_early and first.kind != "unknown")
    return (first.kind == "same" and not first.worst) or (is_early and first.is_exact)


def _with_reruns(a: Reruns, b: Reruns, length: int) -> Diffed:
    pairing = pair(a.run, b.run)
    runs = a.perturbed(SEEDS, length)
    if not all(repeats_itself(a.run, run) for run in runs):
        verdict = judge(a.run, b.run, None, pairing)
        if not verdict.is_exact:
            verdict = dataclasses.replace(verdict, kind="unknown", need="seed", causes=())
        return Diffed(verdict, a, b, ("A does not repeat itself: run again, it was given other examples.",))
    verdict = judge(a.run, b.run, measure(a.run, runs, pairing), pairing)
    if not verdict.may_be_tipped or verdict.need == "steps":
        return Diffed(verdict, a, b)
    assert verdict.first is not None
    step = verdict.first.step
    for until in (min(max(step, 0) + 1, length), length):  # the steps after it only if it was tipped
        every = [*runs, *a.perturbed(MORE_SEEDS, until)]
        verdict = judge(a.run, b.run, _of_both(a, b, every, until), pairing)
        if verdict.first is not None and verdict.first.step <= step:
            break
    return Diffed(verdict, a, b)


def _of_both(a: Reruns, b: Reruns, runs: Sequence[RecordedRun], until: int) -> MeasuredYardstick:
    """Returns the yardstick of A, or that of B where that is coarser, if B can be run again."""
    pairing = pair(a.run, b.run)
    measured = measure(a.run, runs, pairing)
    try:
        moved = [] if b.why_not() else b.perturbed(SEEDS, until)
    except SamestepError:
        moved = []
    if not moved or not all(repeats_itself(b.run, run) for run in moved):
        return measured
    return coarser(measured, measure(b.run, moved, pairing, 1))


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
