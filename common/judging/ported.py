"""Judges a TensorFlow run whose reference is the torch model in the same file, by what `samestep port` finds.

Where the two are the same model up to constants that one framework keeps in float32, or where steps amplify rounding, the curve
of the run leaves its reference's by more than a strategy may cause. The strategy is compared with the same model on one device.
The curve must stay within what the port allows for its own curve, from the same weights on the same batches. Where the user
accepts a difference between the two, the curve may be off by that as well.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence

from samestep.common.judging.attribution import PORT, STEPS, blame_model
from samestep.common.judging.parity import LOSS_BOUND, Attribution, Parity, deviation, judge
from samestep.common.judging.reference_run import ComparedSteps, Curve, Rerun, reference_of, without_counterpart
from samestep.common.porting.case import DIFFERENT, PortCase, PortVerdict
from samestep.common.strategy import Run
from samestep.common.techniques.used import without

PortedModel = tuple[PortCase, PortVerdict]
"""Two implementations of a model, and what comparing them found."""
AskPort = Callable[[Run, int], PortedModel | None]
"""(run, steps) -> the port of its model, with a curve of that many steps; None if the two models cannot be compared."""


def judge_port_of(run: Run, parity: Parity, taken: ComparedSteps, rerun: Rerun, ask: AskPort) -> Parity | None:
    """Judges a float64 run that left its reference, if the strategy is correct and the whole deviation comes from the port.

    Args:
        run: The run that left its reference.
        parity: The verdict on its curve.
        taken: The steps that it took.
        rerun: Repeats steps of the run.
        ask: Compares the two models.

    Returns:
        The verdict: the run passed if the two are the same model and its curve stays within what that allows. None if there is no
        torch model in the file, if the run does not agree with its own model on one device either, or if the port cannot be made.
    """
    if not _is_ported(run) or parity.passed or parity.max_relative_loss is None:
        return None
    one = dataclasses.replace(without_counterpart(run), steps=run.steps)
    left = 0.0 if run.described() == one.described() else _apart(taken, rerun.steps(one))
    if not left <= LOSS_BOUND["float64"] or (found := ask(run, len(taken.losses))) is None:
        return None
    case, verdict = found
    bounds = [max(LOSS_BOUND["float64"], bound) for bound in case.allowed_deviations()]
    off = [deviation(loss, right, "float64") for loss, right in zip(taken.losses, taken.wanted, strict=True)]
    is_within = len(bounds) == len(off) and all(each <= bound for each, bound in zip(off, bounds, strict=True))
    whose = f"the run's distance from {one.name} is {left:.1g}"
    if verdict.kind != DIFFERENT and (is_within or case.accepted):
        reason = f"{verdict.sentence}, and {whose}: the strategy is right"
        bound = max(*bounds, *(off if case.accepted else ()))
        return dataclasses.replace(parity, passed=True, reason=reason, loss_bound=bound)
    size = f"{parity.max_relative_loss:.1e}"
    cause = blame_model(PORT, size, f"{whose}, and `samestep port` says: {verdict.sentence}")
    return dataclasses.replace(parity, passed=False, **cause._asdict())


def _is_ported(run: Run) -> bool:
    return run.workload.model.facts.counterpart is not None


def _apart(taken: ComparedSteps, curve: Curve) -> float:
    """Returns how far steps are from those of the same model on one device; infinity if only their weights differ."""
    losses = curve.losses[: len(taken.losses)]
    parity = judge("", "float64", 0, taken.losses, losses, taken.params, curve.state.params, taken.noise)
    is_off_in_weights = not parity.passed and parity.first_bad_step is None
    return math.inf if is_off_in_weights or parity.max_relative_loss is None else parity.max_relative_loss


def judge_with_port(
    run: Run,
    parity: Parity,
    taken: ComparedSteps,
    rerun: Rerun,
    ask: AskPort | None,
    find_cause: Callable[[], Attribution],
) -> Parity:
    """Judges a run that left its reference: by its port if that explains everything, else by its cause and what the port adds.

    Args:
        run: The run.
        parity: The verdict on its curve.
        taken: The steps that it took.
        rerun: Repeats steps of the run.
        ask: Compares the two models; None if that is not possible.
        find_cause: Finds why the run is off.
    """
    judged = None if ask is None else _judge_in_float64(run, parity, taken, rerun, ask)
    if judged is not None:
        return judged
    (said, blame), found = find_cause(), ask(run, len(taken.losses)) if ask is not None and _is_ported(run) else None
    if found is not None and found[1].kind == DIFFERENT and found[1].sentence not in said:
        said += f"; in addition, `samestep port` says: {found[1].sentence}"
    return dataclasses.replace(parity, reason=said, blame=blame)


def _judge_in_float64(run: Run, parity: Parity, taken: ComparedSteps, rerun: Rerun, ask: AskPort) -> Parity | None:
    """Judges a run by its port; a float32 run is repeated in float64, where differences of the port show."""
    if run.dtype == "float64":
        return judge_port_of(run, parity, taken, rerun, ask)
    if not _is_ported(run) or run.arithmetic != run.dtype or "float64" not in run.strategy.dtypes:
        return None
    like = dataclasses.replace(run, dtype="float64", steps=len(taken.losses))
    found = _judge_anew(like, taken.wanted, taken.noise, rerun, ask)
    if found is None or not found.passed:
        return found and dataclasses.replace(parity, reason=found.reason, blame=found.blame)
    reason = f"rounding is amplified: in float64 it is {found.reason} ({parity.reason})"
    return dataclasses.replace(parity, passed=True, reason=reason, is_amplified=True)


def _judge_anew(run: Run, wanted: Sequence[float], noise: float, rerun: Rerun, ask: AskPort) -> Parity | None:
    """Repeats the steps of a run in float64, and judges them by its port."""
    curve = rerun.steps(run)
    off = max(deviation(loss, right, "float64") for loss, right in zip(curve.losses, wanted, strict=True))
    parity = Parity("", len(curve.losses), off if math.isfinite(off) else None, None, off <= LOSS_BOUND["float64"])
    return judge_port_of(run, parity, ComparedSteps(curve.losses, wanted, curve.state.params, noise), rerun, ask)


def is_right_but_for_port(run: Run, first: int, noise: float, rerun: Rerun | None, ask: AskPort | None) -> bool:
    """Returns whether the first steps of a run in two bytes, repeated in float64, are off by no more than the port allows.

    Args:
        run: The run in two bytes.
        first: The number of its first step.
        noise: As in `ComparedSteps`.
        rerun: Repeats steps of the run; None if that is not possible.
        ask: Compares the two models of the file; None if that is not possible.
    """
    if rerun is None or ask is None or not _is_ported(run):
        return False
    techniques = without("replaces_code", without("gradient_error", run.techniques))
    short = dataclasses.replace(run, dtype="float64", steps=min(run.steps, first + STEPS), techniques=techniques)
    found = _judge_anew(short, rerun.steps(reference_of(short)).losses, noise, rerun, ask)
    return found is not None and bool(found.passed)
