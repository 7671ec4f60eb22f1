"""Judges two records, with reruns of the first one's command as the yardstick."""

import contextlib
import dataclasses
from pathlib import Path

from samestep.common.errors import ParityFailed, SamestepError, Unavailable
from samestep.common.judging.recorded.judge import judge, judge_unless_rounded
from samestep.common.judging.recorded.pairing import pair
from samestep.common.judging.recorded.repeating import draws_others, judge_by_reruns, repeats_itself, starts_alike
from samestep.common.judging.recorded.verdict import RecordedVerdict, place
from samestep.common.judging.recorded.yardstick import Yardstick, measure_both, rounds_more
from samestep.common.steps.recorded_run import RecordedRun
from samestep.experiments.recording.rerun_folder import count_steps
from samestep.experiments.recording.reruns import SEEDS, NotRepeated, Reruns
from samestep.experiments.recording.resumed import judge_resumed
from samestep.experiments.recording.tipping import AGAIN, perturbed, try_float64, try_further


@dataclasses.dataclass(frozen=True)
class Diffed:
    """Two records and the verdict on them.

    Attributes:
        verdict: The verdict.
        a: The first record, as it was judged.
        b: The second record.
        notes: The notes on the reruns.
    """

    verdict: RecordedVerdict
    a: Reruns
    b: Reruns
    notes: tuple[str, ...] = ()


def diff(a: Reruns, b: Reruns, num_steps: int) -> Diffed:
    """Judges two records.

    Args:
        a: The first run, whose reruns are the yardstick.
        b: The second run, which is compared with A.
        num_steps: The most steps of perturbed reruns.

    Raises:
        ConfigError: They have nothing in common, or are damaged.
    """
    is_float64 = a.run.header.is_float64
    first = judge(a.run, b.run) if is_float64 else judge_unless_rounded(a.run, b.run)
    if first is not None and (resumed := _resumed(a, b, first)) is not None:
        return resumed
    if first is not None and _is_settled(a, first) and not _may_be_computed(a, first, num_steps):
        is_known = first.is_exact or any(cause.name != "other_loss" for cause in first.causes)
        is_open = is_float64 and first.exit_code == ParityFailed.exit_code and not is_known
        random = _find_random(a) if is_open else None
        return _without_seed(a, b, random) if random else Diffed(first, a, b)
    length = min(count_steps(side.run, num_steps) for side in (a, b))
    try:
        found = _by_reruns_of_a(a, b, length)
        random = _find_random(a) if found.verdict.need == "float64" else None
        return _without_seed(a, b, random) if random else found
    except NotRepeated as error:
        if error.is_random:
            return _without_seed(a, b, error)
        why = str(error)
    except SamestepError as error:
        why = str(error).removesuffix(".")
    with contextlib.suppress(SamestepError):
        if not rounds_more(a.run, b.run):
            return _by_reruns_of_b(a, b, length, why)
    first = first or judge(a.run, b.run)
    return Diffed(first, a, b, (f"A cannot be run again, so the effect of rounding was not measured: {why}.",))


def judge_as_kept(a: Reruns, b: Reruns) -> tuple[Diffed, Yardstick]:
    """Judges two records without running anything: by the reruns that are kept in A, or by unit roundoffs if there are none.

    Args:
        a: The first run, whose reruns are the yardstick.
        b: The second run, which is compared with A.

    Raises:
        ConfigError: They have nothing in common, or are damaged.
    """
    found, yardstick = _as_kept(a, b)
    return _resumed(a, b, found.verdict) or found, yardstick


def _as_kept(a: Reruns, b: Reruns) -> tuple[Diffed, Yardstick]:
    pairing = pair(a.run, b.run)
    is_float64 = a.run.header.is_float64
    runs, of_b = ([] if is_float64 else _alike(side) for side in (a, b))
    needs_b = rounds_more(b.run, a.run) if runs else not rounds_more(a.run, b.run)
    if of_b if needs_b else runs:
        measured = measure_both(a.run, runs, b.run, of_b if needs_b else [], pairing)
        return Diffed(judge(a.run, b.run, measured), a, b), measured
    derived = Yardstick.derived(a.run.header, b.run.header, pairing)
    lacks = f"{'B' if runs else 'A'} holds no reruns, so the effect of rounding was not measured but estimated"
    return Diffed(judge(a.run, b.run, derived), a, b, () if is_float64 else (lacks,)), derived


def _resumed(a: Reruns, b: Reruns, first: RecordedVerdict) -> Diffed | None:
    """Judges two runs if one continues the other; None if both begin with the same weights, or if neither continues the other."""
    has_other_start = first.first is not None and first.first.phase == "initial weights"
    verdict = judge_resumed(a.run, b.run) if has_other_start else None
    return None if verdict is None else Diffed(verdict, a, b)


def _alike(side: Reruns) -> list[RecordedRun]:
    """Returns the kept reruns; none if one took other steps. Other examples are allowed if making a rerun twice repeats them."""
    runs, again = side.kept(), side.kept(AGAIN)
    others = [seed for seed, run in runs.items() if not repeats_itself(side.run, run)]
    are_computed = any(seed in again and repeats_itself(runs[seed], again[seed]) for seed in others)
    is_alike = all(are_computed and starts_alike(side.run, runs[seed]) for seed in others)
    return [*runs.values()] if is_alike else []


def _is_settled(a: Reruns, first: RecordedVerdict) -> bool:
    """Returns whether no rerun could change the verdict."""
    if a.run.header.is_float64:
        is_early = first.first is not None and first.first.step <= 0
        return first.kind == "same" or (is_early and first.kind != "unknown")
    return (first.kind == "same" and not first.worst) or first.is_exact  # before it no step was rounded otherwise


def _may_be_computed(a: Reruns, first: RecordedVerdict, num_steps: int) -> bool:
    """Returns whether differing examples may be computed from the weights; A then has others once its weights are perturbed.

    Args:
        a: The first run.
        first: The verdict without reruns.
        num_steps: The most steps of perturbed reruns.
    """
    if a.run.header.is_float64 or first.kind != "unnamed" or first.first is None or first.first.phase != "data":
        return False
    with contextlib.suppress(SamestepError):
        rerun = a.perturbed(SEEDS[:1], min(first.first.step + 1, num_steps))[0]
        return starts_alike(a.run, rerun) and not repeats_itself(a.run, rerun)
    return False


def _find_random(a: Reruns) -> NotRepeated | None:
    """Returns an error if A does not repeat itself: the first step of a rerun differs when the rerun is made again.

    How far such a script is from itself is no yardstick that could show it: by that, everything repeats itself.

    Args:
        a: The first run.
    """
    with contextlib.suppress(SamestepError):
        (once,), (again,) = a.perturbed(SEEDS[:1], 1), a.perturbed(SEEDS[:1], 1, AGAIN)
        verdict = judge(once, again)
        why = "run twice, its command takes another step each time, as it draws other random numbers"
        if verdict.first is not None and verdict.exit_code == ParityFailed.exit_code:
            return NotRepeated(f"{why} ({place(verdict.first)})", is_random=True)
        if draws_others(once, again, 0):  # in few digits a verdict cannot tell
            return NotRepeated(f"{why} (step 0, gradient)", is_random=True)
    return None


def _without_seed(a: Reruns, b: Reruns, error: NotRepeated) -> Diffed:
    """Judges without a yardstick, since a run that is different each time has none."""
    verdict = judge(a.run, b.run)
    if not verdict.is_exact:
        verdict = dataclasses.replace(verdict, kind="unknown", need="seed", causes=(), worst=0.0, resolution=None)
    return Diffed(verdict, a, b, (f"A does not repeat itself: {error}.",))


def _by_reruns_of_b(a: Reruns, b: Reruns, length: int, why: str) -> Diffed:
    """Judges by how far rounding moves B; it moves A equally far if both take the same steps.

    Args:
        a: The first run, whose reruns are the yardstick.
        b: The second run, which is compared with A.
        length: The number of steps of reruns.
        why: Why A cannot be run again.
    """
    runs = perturbed(b, SEEDS, length)
    verdict = try_further(a, b, [], runs, judge_by_reruns(a.run, b.run, [], runs), length)
    if verdict.need == "float64":  # A cannot be run in float64
        verdict = dataclasses.replace(verdict, need="command")
    return Diffed(verdict, a, b, (f"A cannot be run again: {why}. Reruns of B measured how far rounding goes.",))


def _by_reruns_of_a(a: Reruns, b: Reruns, length: int) -> Diffed:
    runs = perturbed(a, SEEDS, length)
    verdict = judge_by_reruns(a.run, b.run, runs)
    # Examples in fewer digits are no other ones; whether a loss that is off says so is for B's own rounding to decide.
    is_exact = verdict.is_exact and verdict.first is not None and verdict.first.phase != "data"
    if is_exact or verdict.kind in ("same", "amplified") or not rounds_more(b.run, a.run):
        verdict = try_float64(a, b, runs, verdict, length)
        return Diffed(try_further(a, b, runs, [], verdict, length), a, b)
    try:
        of_b = perturbed(b, SEEDS, length)
    except SamestepError as error:
        noted = f"the effect of B's rounding was not measured: {str(error).removesuffix('.')}."
        return Diffed(judge(a.run, b.run), a, b, (noted,))
    return Diffed(judge_by_reruns(a.run, b.run, runs, of_b), a, b)


def in_float64(sides: tuple[Reruns, Reruns]) -> tuple[Reruns, Reruns]:
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
        try:
            run = side.in_float64(length)
        except Unavailable as error:
            raise Unavailable(
                f"{side.name} cannot be run again in float64: {error}; record it again, or give its command."
            ) from None
        found.append(dataclasses.replace(side, run=run, directory=Path(run.name)))
    one, other = found
    return one, other
