"""Judges two recorded runs: finds the first step and phase at which they differ by more than rounding, and why."""

import dataclasses
import math

from samestep.common.errors import ConfigError, percent
from samestep.common.judging.recorded.bounds import unreached
from samestep.common.judging.recorded.differences import THRESHOLD, finite
from samestep.common.judging.recorded.findings import Finding, find
from samestep.common.judging.recorded.inputs import ALL_ARGUMENTS, OTHER_MASK
from samestep.common.judging.recorded.notes import UNSEEN, find_notes, further_notes, reshaped
from samestep.common.judging.recorded.pairing import pair
from samestep.common.judging.recorded.passes import with_whole_runs
from samestep.common.judging.recorded.past import Past
from samestep.common.judging.recorded.sensitivity import BLIND, SHOWN, Seen, look
from samestep.common.judging.recorded.verdict import EXACT, Kind, Need, RecordedVerdict, TensorRow
from samestep.common.judging.recorded.walk import Walk
from samestep.common.judging.recorded.written import with_written
from samestep.common.judging.recorded.yardstick import Yardstick
from samestep.common.mistakes.evidence import Evidence
from samestep.common.mistakes.formulas import STATE
from samestep.common.mistakes.table import causes
from samestep.common.steps.recorded_run import RecordedRun, RunStep

RANDOM = 0.5
"""The resolution above which rounding of smooth functions cannot be the reason."""
AMPLIFIED = 100.0
"""How many times rounding must grow to be called amplified."""

_BROKEN = "step {} leaves parameters of both infinite or NaN: later steps are not compared"


def judge(a: RecordedRun, b: RecordedRun, yardstick: Yardstick | None = None) -> RecordedVerdict:
    """Judges two recorded runs.

    Args:
        a: The run to compare with.
        b: The run that is compared.
        yardstick: How far rounding moves a step; derived from unit roundoffs by default.

    Raises:
        ConfigError: The runs have no step or no tensor in common.
    """
    verdict = _judge(a, b, yardstick)
    assert verdict is not None
    return verdict


def judge_unless_rounded(a: RecordedRun, b: RecordedRun) -> RecordedVerdict | None:
    """Judges two recorded runs; returns None as soon as a step shows a difference that may be rounding.

    Args:
        a: One run.
        b: The other run.

    Raises:
        ConfigError: The runs have no step or no tensor in common.
    """
    return _judge(a, b, None, ends_at_rounding=True)


def _judge(
    a: RecordedRun, b: RecordedRun, yardstick: Yardstick | None, ends_at_rounding: bool = False
) -> RecordedVerdict | None:
    yardstick = yardstick or Yardstick.derived(a.header, b.header, pair(a, b))
    if a.header.is_float64 != b.header.is_float64:
        raise ConfigError(
            f"one of {a.name} and {b.name} is a record in float64 and the other is not; record both alike."
        )
    walk = Walk(a, b, yardstick)
    past = Past(walk.pairing, 0), Past(walk.pairing, 1)
    seen, unsure = Seen(), None
    for one, other in walk.steps():
        past[0].note(one)
        past[1].note(other)
        seen.num_steps += one.number >= 0
        finding = find(walk, one, other, past)
        if finding and finding.is_certain:
            is_first = finding.is_first and unsure is None
            return _different(walk, one, other, past, dataclasses.replace(finding, is_first=is_first), seen)
        if finding and unsure is None and _is_proven(walk, one, other, past, finding):
            return _different(walk, one, other, past, finding, seen)
        unsure = unsure or (finding and (finding, one, other))
        look(walk, one, other, seen)
        if ends_at_rounding and one.number >= 0 and (unsure or seen.worst):
            return None
        past[0].end(one)
        past[1].end(other)
    if not seen.num_steps:
        raise ConfigError(f"{a.name} and {b.name} have no step in common; record more steps.")
    return _unsure(walk, seen, *unsure) if unsure else _same(walk, seen)


def _is_proven(walk: Walk, one: RunStep, other: RunStep, past: tuple[Past, Past], finding: Finding) -> bool:
    """Returns whether arithmetic that rounding cannot imitate explains an update whose rounding was not measured."""
    is_guess = not walk.yardstick.is_measured and finding.first.phase == "update"
    return is_guess and bool(causes(_evidence(walk, one, other, past, finding), STATE))


def _unsure(walk: Walk, seen: Seen, finding: Finding, one: RunStep, other: RunStep) -> RecordedVerdict:
    """Returns the verdict on runs of which a step may differ, but none certainly does."""
    rows, why = _rows(walk, one, other, finding), walk.yardstick.said_of(finding.first.step)
    return _verdict(walk, seen, "unknown", finding, need=_need(walk, finding), rows=rows, first_notes=why)


def _same(walk: Walk, seen: Seen) -> RecordedVerdict:
    growth = seen.last_apart / seen.first_apart if seen.first_apart else 1.0
    if seen.resolution is not None and seen.resolution > BLIND:
        if seen.hidden > BLIND or seen.num_unseen:
            return _blind(walk, seen)
        seen.resolution = seen.hidden  # rounding could have moved these steps farther, but did not
    if seen.broken == 0:
        return _verdict(walk, seen, "unknown", first_notes=(_BROKEN.format(0),))
    made = _verdict(walk, seen, "amplified" if growth >= AMPLIFIED else "same")
    notes, last = made.notes + unreached(*seen.bounds), walk.yardstick.last
    if walk.yardstick.is_measured and seen.num_steps - 1 > last:
        notes += (
            f"from step {last + 1} on, rounding is taken to grow as before; --steps {seen.num_steps} measures it",
        )
    if seen.broken is not None:
        made, notes = dataclasses.replace(made, num_steps=seen.broken), (_BROKEN.format(seen.broken), *notes)
    if math.isnan(walk.lone_loss) and seen.looked < made.num_steps:
        made, notes = dataclasses.replace(made, num_steps=seen.looked), (UNSEEN.format(seen.looked), *notes)
    if walk.longer:
        notes += (f"only {walk.longer} has steps after step {seen.num_steps - 1}, which are not compared",)
    return dataclasses.replace(made, growth=growth, notes=notes)


def _blind(walk: Walk, seen: Seen) -> RecordedVerdict:
    """Returns the verdict on runs that agree as closely as A agrees with itself, which is not close enough."""
    step, name, share = seen.jump
    is_float64, is_jumping = walk.a.header.is_float64, min(seen.resolution or 0.0, THRESHOLD * share) > RANDOM
    need: Need = "seed" if is_float64 and is_jumping else "float64"
    if seen.hidden <= BLIND:  # so some steps lack tensors
        words = (
            f"nothing that was recorded differs by more than {percent(BLIND * SHOWN, 3)}, but {seen.num_unseen} of "
            f"{seen.num_steps} steps lack tensors, and rounding could hide a mistake there: record every step (--every 1)"
        )
        return _verdict(walk, seen, "unknown", need=need, first_notes=(words,))
    if not is_jumping:
        return _verdict(walk, seen, "unknown", need=need)
    words = (
        f"step {step}, gradient of {name}: a run differs from itself by {share:.1e} of the norm if its weights are moved in "
        "their last bit, and B differs from A by no more. Either a number lies within rounding of a threshold (a kink), as in "
        "x > mean on a tie, or the run draws other random numbers each time"
    )
    if (step, "gradient") not in walk.yardstick.spreads:
        words = (
            f"step {step}, gradient of {name}: rounding to so few digits may move it by {share:.1e} of the norm, "
            "which was not measured, and B differs from A by no more"
        )
    return _verdict(walk, seen, "unknown", need=need, first_notes=(words,))


def _verdict(
    walk: Walk,
    seen: Seen,
    kind: Kind,
    finding: Finding | None = None,
    need: Need = "",
    rows: tuple[TensorRow, ...] = (),
    first_notes: tuple[str, ...] = (),
) -> RecordedVerdict:
    made = RecordedVerdict(kind, seen.num_steps, finding.first if finding else None, rows=rows, worst=seen.worst)
    notes = first_notes + find_notes(walk)
    return dataclasses.replace(made, resolution=seen.resolution, need=need, notes=notes, but_for=walk.but_for)


def _need(walk: Walk, finding: Finding) -> Need:
    """Returns what would decide: reruns if there are none, otherwise float64 or more steps of them; "" if nothing would."""
    if not walk.yardstick.is_measured:
        return "command" if not walk.a.header.is_float64 else "steps"
    if walk.yardstick.said_of(finding.first.step):
        return "" if walk.a.header.is_float64 else "float64"
    return "float64" if finding.is_kink else "steps"


def _need_of_earlier(walk: Walk, finding: Finding) -> Need:
    """Returns what would decide whether an earlier step differs as well; "" if nothing would."""
    if walk.yardstick.is_measured:
        return "steps" if finding.first.step > walk.yardstick.last else ""
    return "" if walk.a.header.is_float64 else "command"


def _different(
    walk: Walk, one: RunStep, other: RunStep, past: tuple[Past, Past], finding: Finding, seen: Seen
) -> RecordedVerdict:
    """Returns the verdict on runs of which a step certainly differs."""
    look(walk, one, other, seen)
    evidence = _evidence(walk, one, other, past, finding)
    is_known = finding.is_first and not _is_broken(walk, one, other)
    found = causes(evidence) if is_known or finding.first.phase in EXACT else ()
    for each in (ALL_ARGUMENTS, OTHER_MASK) if found else ():
        walk.asides.pop(each, None)
    rows = _rows(walk, one, other, finding)
    is_guess = not walk.yardstick.is_measured and finding.first.phase == "update"
    if (finding.is_kink or is_guess) and not found:
        return _verdict(walk, seen, "unknown", finding, need=_need(walk, finding), rows=rows)
    has_other_start = finding.first.phase == "initial weights"
    need: Need = "" if finding.is_first or finding.first.phase in EXACT else _need_of_earlier(walk, finding)
    if has_other_start:
        need = "model" if reshaped(walk) else "weights" if finding.first.step < 0 else ""
    made = _verdict(walk, seen, "named" if found or has_other_start else "unnamed", finding, need=need, rows=rows)
    further = () if found else further_notes(evidence, seen.bounds)
    return dataclasses.replace(made, causes=found, notes=made.notes + further)


def _evidence(walk: Walk, one: RunStep, other: RunStep, past: tuple[Past, Past], finding: Finding) -> Evidence:
    phase = "targets" if finding.has_other_targets else finding.first.phase
    evidence = with_written(walk, walk.evidence(phase, one, other, past), one, other, past)
    return with_whole_runs(walk, evidence) if phase in ("data", "hyper-parameters") else evidence


def _is_broken(walk: Walk, one: RunStep, other: RunStep) -> bool:
    """Returns whether a step has numbers that no arithmetic explains: infinities or NaN."""
    phases = [walk.compare("gradient", one, other), walk.compare("weight", one, other)]
    return any(compared is not None and bool(compared.is_broken.any()) for compared in phases)


def _rows(walk: Walk, one: RunStep, other: RunStep, finding: Finding) -> tuple[TensorRow, ...]:
    """Returns a row for each tensor of the step that differs: for its gradient, or for its weights if the update differs."""
    compared = walk.compare(
        "weight" if finding.first.phase in ("update", "initial weights") else "gradient", one, other
    )
    if compared is None:
        return ()
    rows = []
    for place, tensor in enumerate(walk.pairing.tensors):
        a, b = finite(compared.one.projections[place]), finite(compared.other.projections[place])
        square, apart = float(a @ a), float((b - a) @ (b - a))
        ratio = float(a @ b) / square if square else math.nan
        off = math.sqrt(apart / square) if square else (math.inf if apart else 0.0)
        differs = bool(compared.differs[place] or compared.is_unsure[place])
        rows.append(TensorRow(tensor.name, ratio, off, float(compared.times[place]), differs))
    return tuple(rows)
