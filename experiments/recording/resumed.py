"""Judges a run that continues another one: it begins with the weights that the other had after some step.

From there on, both take the same steps if the script has saved and restored everything on which they depend. Reruns begin at
the start of a command, so none measures how far rounding moves these steps, and unit roundoffs are the yardstick.
"""

import dataclasses
import functools
import math
from collections.abc import Iterable, Iterator

from samestep.common.errors import ConfigError
from samestep.common.judging.recorded.judge import judge
from samestep.common.judging.recorded.pairing import pair
from samestep.common.judging.recorded.verdict import RecordedVerdict
from samestep.common.steps.recorded_run import ReadAnew, RecordedRun, RunStep, digest_of, own_rows

_UNMEASURED = "reruns begin at the start of a command, so the effect of rounding on these steps was not measured"


def _after(steps: Iterable[RunStep], number: int) -> Iterator[RunStep]:
    """Yields the steps of a run after the step with a number, counted from 0."""
    for step in steps:
        if step.number == number:
            yield RunStep(-1, sums={"weight": (step.sums or {})["weight"]})
        elif step.number > number:
            yield dataclasses.replace(step, number=step.number - number - 1)


def judge_resumed(a: RecordedRun, b: RecordedRun) -> RecordedVerdict | None:
    """Judges two runs, one of which continues the other; None if neither does, or if they then have no step in common.

    Args:
        a: The first run.
        b: The other run, whose initial weights differ.
    """
    for who, whole, other, rest in (("AB", a, b, "A"), ("BA", b, a, "B")):
        if (number := _found_in(whole, other)) is None:
            continue
        earlier = tuple(
            (step.scalars.get("lr", math.nan), digest_of(own_rows(step.rows or {})))
            for step in whole.steps
            if 0 <= step.number <= number
        )
        later = dataclasses.replace(
            whole, steps=ReadAnew(functools.partial(_after, whole.steps, number)), earlier=earlier
        )
        try:
            verdict = judge(later, b) if rest == "A" else judge(a, later)
        except ConfigError:
            return None
        said = f"{who[1]} begins with the weights that {who[0]} had after step {number}"
        said += f", so step 0 is step {number + 1} of {who[0]}, and the steps after it likewise"
        if verdict.kind == "unknown":
            verdict = dataclasses.replace(verdict, need="", notes=(*verdict.notes, _UNMEASURED))
        return dataclasses.replace(verdict, notes=(said, *verdict.notes))
    return None


def _found_in(whole: RecordedRun, other: RecordedRun) -> int | None:
    """Returns the first step after which a run has, in every bit, the initial weights of another one; None if there is none.

    Args:
        whole: The run with the step.
        other: The run with the initial weights.
    """
    pairing, first = pair(whole, other), next(iter(other.steps), None)
    if first is None or first.number >= 0 or not first.sums:
        return None
    begun, own = pairing.of(first.sums["weight"], 1), pairing.are_parameters
    for step in whole.steps:
        now = (step.sums or {}).get("weight") if step.number >= 0 else None
        if now is not None and pairing.of(now, 0).are_as(begun)[own].all():
            return step.number
    return None
