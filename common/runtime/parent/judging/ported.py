"""A TensorFlow run whose reference is the torch model beside it, judged by what `samestep port` finds: one judgement for both.

Where the two are the same model up to constants that one framework keeps in float32, or where steps amplify rounding, the curve
of the run leaves its reference's by more than a strategy may. The strategy is held against the same model on one device,
and the curve to what the port allows: that of its own curve, from the same weights on the same batches.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from samestep.common.errors import SamestepError
from samestep.common.judging.parity import LOSS_BOUND, Parity, deviation, judge
from samestep.common.porting.case import DIFFERENT, Case, Verdict
from samestep.common.porting.verdict import allowed_deviations
from samestep.common.program import TrainState
from samestep.common.request import Launch, RunConfig
from samestep.common.run import as_config
from samestep.common.runtime.parent.judging.attribution import STEPS, Repeat
from samestep.common.runtime.parent.judging.reference import reference_of, without_twin
from samestep.common.strategy import Run
from samestep.common.workload.models.own import OwnSpec

PortedModel = tuple[Case, Verdict]
"""Two implementations of a model, and what comparing them found."""
AskPort = Callable[[Run, int], PortedModel | None]
"""(run, steps) -> the port of its model, with the curve of as many steps; None if it cannot be had."""


@dataclasses.dataclass(frozen=True, eq=False)
class Taken:
    """The steps that a run took.

    Attributes:
        losses: One per step that was judged.
        wanted: The reference's.
        params: The weights after the last step, by neutral name.
        noise: How far rounding alone may have moved a weight.
    """

    losses: Sequence[float]
    wanted: Sequence[float]
    params: Mapping[str, np.ndarray]
    noise: float = 0.0


_DECIDE = ("model", "data", "seed", "batch_size", "optimizer", "learning_rate", "timeout_seconds")
"""What of a run's request a port has as well."""


class Ports:
    """Holds the two models of a run's file against each other, once for all the runs of a command."""

    def __init__(self, port: Callable[[RunConfig], PortedModel]) -> None:
        """Asks nothing yet.

        Args:
            port: Runs both implementations.
        """
        self._port = port
        self._found: dict[tuple[object, ...], PortedModel | None] = {}

    def ask(self, launch: Launch, run: Run, steps: int) -> PortedModel | None:
        """Finds out whether the two are the same model, with the curve that a run takes; None if that fails.

        Args:
            launch: Names the model and the data.
            run: Says the batches, the optimizer and its rate.
            steps: Of the curve.
        """
        own = as_config(run, launch)
        asked = {name: getattr(own, name) for name in _DECIDE} | {"steps": steps}
        if (key := tuple(asked.values())) not in self._found:
            try:
                self._found[key] = self._port(RunConfig(**asked))
            except SamestepError:
                self._found[key] = None
        return self._found[key]


def judge_port_of(run: Run, parity: Parity, taken: Taken, repeat: Repeat, ask: AskPort) -> Parity | None:
    """Judges a run in float64 that left its reference, where the strategy is right and all of the deviation is the port's.

    Args:
        run: What left its reference.
        parity: The verdict on its curve.
        taken: Its steps.
        repeat: Takes the steps of a run.
        ask: Holds the two models against each other.

    Returns:
        The verdict: it passed if the two are the same model and its curve stays within what that allows. None if its model
        has no torch model beside it, if the run is not that of its own model either, or if the port cannot be asked.
    """
    if not _is_ported(run) or parity.passed or parity.max_relative_loss is None:
        return None
    one = dataclasses.replace(without_twin(run), steps=run.steps)
    left = 0.0 if run.described() == one.described() else _apart(taken, *repeat(one))
    if not left <= LOSS_BOUND["float64"] or (found := ask(run, len(taken.losses))) is None:
        return None
    case, verdict = found
    bounds = [max(LOSS_BOUND["float64"], bound) for bound in allowed_deviations(case)]
    off = [deviation(loss, right, "float64") for loss, right in zip(taken.losses, taken.wanted, strict=True)]
    is_within = len(bounds) == len(off) and all(each <= bound for each, bound in zip(off, bounds, strict=True))
    whose = f"from {one.name} it is {left:.1g}: the strategy is right"
    if verdict.kind != DIFFERENT and is_within:
        reason = f"{verdict.sentence}, and {whose}"
        return dataclasses.replace(parity, passed=True, reason=reason, loss_bound=max(bounds))
    size = f"{parity.max_relative_loss:.1e}"
    reason = f"not the same function: {size}, all of it the port: {whose}, and `samestep port` says: {verdict.sentence}"
    return dataclasses.replace(parity, passed=False, reason=reason)


def _is_ported(run: Run) -> bool:
    return isinstance(model := run.workload.model, OwnSpec) and model.twin is not None


def _apart(taken: Taken, losses: Sequence[float], state: TrainState) -> float:
    """How far steps are from those of the same model on one device; infinitely far if only their weights differ."""
    parity = judge("", "float64", 0, taken.losses, losses[: len(taken.losses)], taken.params, state.params, taken.noise)
    is_off_in_weights = not parity.passed and parity.first_bad_step is None
    return math.inf if is_off_in_weights or parity.max_relative_loss is None else parity.max_relative_loss


def judge_with_port(
    run: Run, parity: Parity, taken: Taken, repeat: Repeat, ask: AskPort | None, find_cause: Callable[[], str]
) -> Parity:
    """Judges a run that left its reference: by its port if that is all there is, else by its cause, with what the port adds.

    Args:
        run: The run.
        parity: The verdict on its curve.
        taken: Its steps.
        repeat: Takes the steps of a run.
        ask: Holds the two models against each other; None if they cannot be.
        find_cause: Finds why the run is off.
    """
    judged = None if ask is None else _judge_in_float64(run, parity, taken, repeat, ask)
    if judged is not None:
        return judged
    said, found = find_cause(), ask(run, len(taken.losses)) if ask is not None and _is_ported(run) else None
    if found is not None and found[1].kind == DIFFERENT and found[1].sentence not in said:
        said += f"; beside that, `samestep port` says: {found[1].sentence}"
    return dataclasses.replace(parity, reason=said)


def _judge_in_float64(run: Run, parity: Parity, taken: Taken, repeat: Repeat, ask: AskPort) -> Parity | None:
    """Judges a run by its port; one in float32 as it is in float64, where its port shows."""
    if run.dtype == "float64":
        return judge_port_of(run, parity, taken, repeat, ask)
    if not _is_ported(run) or run.techniques.precision is not None or "float64" not in run.strategy.dtypes:
        return None
    like = dataclasses.replace(run, dtype="float64", steps=len(taken.losses))
    found = _judge_anew(like, taken.wanted, taken.noise, repeat, ask)
    if found is None or not found.passed:
        return found and dataclasses.replace(parity, reason=found.reason)
    reason = f"rounding is amplified: in float64 it is {found.reason} ({parity.reason})"
    return dataclasses.replace(parity, passed=True, reason=reason, is_amplified=True)


def _judge_anew(run: Run, wanted: Sequence[float], noise: float, repeat: Repeat, ask: AskPort) -> Parity | None:
    """Takes the steps of a run in float64 once more, and judges them by its port."""
    losses, state = repeat(run)
    off = max(deviation(loss, right, "float64") for loss, right in zip(losses, wanted, strict=True))
    parity = Parity("", len(losses), off if math.isfinite(off) else None, None, off <= LOSS_BOUND["float64"])
    return judge_port_of(run, parity, Taken(losses, wanted, state.params, noise), repeat, ask)


def is_right_but_for_port(run: Run, first: int, noise: float, repeat: Repeat | None, ask: AskPort | None) -> bool:
    """Whether the first steps of a run in two bytes, taken in float64, are off by what the port allows, and by no more.

    Args:
        run: In two bytes.
        first: The number of its first step.
        noise: As in `Taken`.
        repeat: Takes the steps of a run.
        ask: Likewise; None where it cannot be done.
    """
    if repeat is None or ask is None or not _is_ported(run):
        return False
    techniques = dataclasses.replace(run.techniques, precision=None, compile=False)
    short = dataclasses.replace(run, dtype="float64", steps=min(run.steps, first + STEPS), techniques=techniques)
    found = _judge_anew(short, repeat(reference_of(short))[0], noise, repeat, ask)
    return found is not None and bool(found.passed)
