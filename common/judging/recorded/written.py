"""Compares what two scripts write to their weights outside of updates: initial weights, and later changes."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from samestep.common.judging.recorded.differences import (
    ComparedTensors,
    apart_of,
    multiples,
    roundoff_of_weights,
    unit_of,
)
from samestep.common.judging.recorded.inputs import Finding
from samestep.common.judging.recorded.past import Past
from samestep.common.judging.recorded.verdict import FirstDifference, layer_of
from samestep.common.judging.recorded.walk import Walk
from samestep.common.judging.recorded.weights import InitialSums
from samestep.common.mistakes.evidence import Evidence
from samestep.common.mistakes.mistake import few
from samestep.common.mistakes.seen_tensor import SeenTensor, differing, parameters
from samestep.common.steps.record import MOVED, UPDATED
from samestep.common.steps.recorded_run import RunStep, Sums


def find_others(walk: Walk, one: RunStep, other: RunStep) -> Finding | None:
    """Finds initial weights that differ by more than their last bits.

    Weights of a network that is created later are left out, since they may differ by rounding.

    Args:
        walk: The walk over both runs; receives all initial weights.
        one: A's frame of initial weights.
        other: B's.
    """
    compared = walk.compare("weight", one, other)
    if compared is None:
        return None
    runs = zip((walk.a, walk.b), walk.pairing.places, strict=True)
    is_later = np.any([[run.tensors[place].name in run.later for place in places] for run, places in runs], axis=0)
    walk.begun = InitialSums(compared.one, compared.other, is_later)
    return _other_starts(walk, one, _differs(walk, walk.begun) & ~is_later)


def find_begun(walk: Walk, one: RunStep, other: RunStep, past: tuple[Past, Past]) -> Finding | None:
    """Finds initial weights that differ by more than rounding, of a network that is created at a step.

    Args:
        walk: The walk over both runs.
        one: A's step, which computes something different.
        other: B's.
        past: The past of A and that of B.
    """
    begun, gradient = walk.begun, walk.compare("gradient", one, other)
    if begun is None or not begun.is_later.any():
        return None
    scale, apart = walk.yardstick.of(one.number, "weight", begun.one), apart_of(begun.one, begun.other)
    differs = _differs(walk, begun) & begun.is_later & (multiples(apart, scale.rounding) > scale.different)
    if gradient is not None:
        differs &= (gradient.one.square > 0) | (gradient.other.square > 0)
    if (before := past[0].before("weight")) is not None:
        differs &= before.bits == begun.one.bits  # no step has moved them
    return _other_starts(walk, one, differs)


def _differs(walk: Walk, begun: InitialSums) -> np.ndarray:
    """Returns which parameters start differently. Buffers are left out, because they have seen the first batch already."""
    unit = np.maximum(unit_of(walk.pairing, walk.a.header.is_float64), roundoff_of_weights(walk.b.header))
    with np.errstate(invalid="ignore"):  # buffers may be infinite, as bounds of parameters are
        apart = np.sqrt(np.mean((begun.one.projections - begun.other.projections) ** 2, axis=1))
    return (apart > 10 * unit * begun.one.norm) & (begun.one.bits != begun.other.bits) & walk.pairing.are_parameters


def _other_starts(walk: Walk, one: RunStep, differs: np.ndarray) -> Finding | None:
    if not differs.any():
        return None
    names = [tensor.name for tensor, each in zip(walk.pairing.tensors, differs, strict=True) if each]
    words = f"the initial weights of {few(names)} differ ({len(names)} of {len(differs)} tensors)"
    return Finding(FirstDifference(one.number, "initial weights", layer_of(names[0]), (), words))


def with_written(walk: Walk, evidence: Evidence, one: RunStep, other: RunStep, past: tuple[Past, Past]) -> Evidence:
    """Adds what both scripts wrote within a step, or after its update.

    Args:
        walk: The walk over both runs.
        evidence: The evidence of the step.
        one: A's step.
        other: B's.
        past: The past of A and that of B.
    """
    weight, begun = walk.compare("weight", one, other), [each.before("weight") for each in past]
    if weight is None or begun[0] is None or begun[1] is None:
        return evidence
    before, moved = (begun[0], begun[1]), [(each.sums or {}).get(MOVED) for each in (one, other)]
    if any(moved):
        now = [
            start if sums is None else walk.pairing.of(sums, side)
            for side, (start, sums) in enumerate(zip(before, moved, strict=True))
        ]
        evidence = dataclasses.replace(evidence, moved=_seen(walk, now, before, weight))
    return _with_written_after(walk, evidence, (one, other), before, weight) if evidence.phase == "update" else evidence


def _with_written_after(
    walk: Walk, evidence: Evidence, steps: tuple[RunStep, RunStep], before: tuple[Sums, Sums], weight: ComparedTensors
) -> Evidence:
    """Adds what was written after the update. If the updates themselves differ, they become the moves."""
    sums = [step.sums or {} for step in steps]
    counts = [step.counts.get("written_after", 0) for step in steps]
    are_known = [UPDATED in own for own in sums]
    if not any(are_known) or any(count and not known for known, count in zip(are_known, counts, strict=True)):
        written = [count or int(known) for known, count in zip(are_known, counts, strict=True)]
        return _with_counts(evidence, written)
    updated = [walk.pairing.of(own.get(UPDATED, own["weight"]), side) for side, own in enumerate(sums)]
    written = [
        int(((each.bits != own.bits) & walk.pairing.are_parameters).sum())
        for each, own in zip(updated, (weight.one, weight.other), strict=True)
    ]
    updates, writes = _seen(walk, updated, before, weight), walk.seen(weight, updated)
    made = dataclasses.replace(_with_counts(evidence, written), updates=updates, writes=writes)
    return dataclasses.replace(made, moves=updates) if differing(parameters(updates)) else made


def _with_counts(evidence: Evidence, written: Sequence[int]) -> Evidence:
    """Notes how many tensors each script has written."""
    a, b = (dataclasses.replace(side, written=n) for side, n in zip((evidence.a, evidence.b), written, strict=True))
    return dataclasses.replace(evidence, a=a, b=b)


def _seen(walk: Walk, sums: list[Sums], before: tuple[Sums, Sums], weight: ComparedTensors) -> tuple[SeenTensor, ...]:
    """Returns how far weights have moved from those before the step, on the scale of the weights."""
    one, other = sums
    apart = apart_of(one, other)
    compared = ComparedTensors(one, other, weight.scale, apart, multiples(apart, weight.scale.rounding))
    return walk.seen(compared, before)
