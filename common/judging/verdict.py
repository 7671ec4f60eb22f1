"""Decides whether a run took the steps of its reference, and if it did not, why.

A verdict is a function of two curves, each a log and a state. If these do not suffice, it has steps repeated.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from samestep.common.judging.parity import COMPILED, Parity, judge, judge_batches, judge_statistics, relative_distance
from samestep.common.judging.reference_run import ComparedSteps, Curve, Rerun
from samestep.common.judging.roundoff import statistics_noise
from samestep.common.judging.updates import judge_updates
from samestep.common.program import SKIPPED, TrainState
from samestep.common.request import ORACLE
from samestep.common.strategy import Run
from samestep.common.techniques.used import counts_devices, gradient_error, periods_of, used
from samestep.common.workload.optimizers.spec import of_dimensions

if TYPE_CHECKING:
    from samestep.common.judging.ported import AskPort


_COMPARED = ("step", "skipped", "params/", "buffers/", f"local/0/{SKIPPED}")
"""The arrays of a final state that a verdict compares, by their names in a state file."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Trial:
    """A run that is compared with its reference.

    Attributes:
        run: The run.
        reference: The reference's run of the same steps.
        seen: The curve of the run.
        wanted: The curve of the reference; it may end earlier or later.
        start: Makes the state that the run started from.
        in_own_names: Names and lays out the reference's weights as the run's model does; None if they are the same.
        alone: Repeats steps of the reference, or of a user's model on one device.
        rerun: Repeats steps of the run; None if that is not possible.
        ask: Compares the two models of a user's file; None if that is not possible.
    """

    run: Run
    reference: Run
    seen: Curve
    wanted: Curve
    start: Callable[[], TrainState]
    in_own_names: Callable[[Mapping[str, np.ndarray]], Mapping[str, np.ndarray]] | None
    alone: Rerun
    rerun: Rerun | None
    ask: "AskPort | None"

    @property
    def has_oracle(self) -> bool:
        """Whether the reference is the oracle; other references may keep other buffers."""
        return self.run.workload.model.facts.has_oracle

    @functools.cached_property
    def skipped(self) -> int | None:
        """The first step whose update the run's loss scaler skipped; the oracle took it, so later steps differ."""
        state = self.seen.state
        skipped = state.local[0].get(SKIPPED, ()) if state.local else ()
        return next((int(step) for step in skipped if step >= self.seen.log.first), None)

    @property
    def is_whole(self) -> bool:
        """Whether the reference's state after the run's last step is known."""
        return self.wanted.state.step == self.run.steps and self.skipped is None

    @functools.cached_property
    def taken(self) -> ComparedSteps:
        """The steps that are compared.

        A user's model may have parameters whose true gradient is zero: a bias before a normalization, the bias of an attention's
        keys. Rounding alone moves their weights, by at most as much as the optimizer's formula allows.
        """
        first, run, losses, wanted = self.seen.log.first, self.run, self.seen.losses, self.wanted.losses
        count = min(len(losses), len(wanted), run.steps if self.skipped is None else self.skipped - first + 1)
        params = self.seen.state.params | (self.seen.state.buffers if self.has_oracle else {})
        moved = run.steps * _rounding_move(run) if run.workload.model.facts.may_lack_gradients else 0.0
        return ComparedSteps(losses[:count], wanted[:count], params, moved)


def judge_trial(trial: Trial) -> Parity:
    """Judges a run by its curve, and by repeating steps if the curve does not decide."""
    parity = _judge_curve(trial)
    if not parity.passed and trial.rerun is not None:
        from samestep.common.judging.missed import judge_again  # here, like those below: most runs pass

        parity = judge_again(trial, parity, trial.rerun)
        if not parity.passed:
            return parity
    return _judge_rest(trial, parity)


def why_not_judged(run: Run, reference: Run, is_wanted: bool) -> str:
    """Returns why a run is not compared with a reference; "" if it is.

    Args:
        run: The run.
        reference: The reference's run of the same steps.
        is_wanted: Whether the user wants it to be judged.
    """
    if run.described() == reference.described():
        return "the oracle is the reference" if run.name == ORACLE else f"{run.name} in float64 is the reference"
    if run.strategy.compiled_cores(run.options):
        return COMPILED
    if not is_wanted:
        return "--no-parity"
    if (flag := counts_devices(run.techniques)) and not run.workload.model.facts.has_oracle:
        return f"{flag} changes the step, and the oracle, which takes the same step, has no {run.workload.name}"
    if not run.strategy.synchronous(run.options):
        return "asynchronous: it promises accuracy, not the same step"
    return ""


def arrays_read(run: Run) -> tuple[str, ...]:
    """Returns the arrays of the final states that the verdict on a run reads; () if it reads all, including optimizer state."""
    return () if _compares_updates(run) or periods_of(run.techniques) else _COMPARED


def _rounding_move(run: Run) -> float:
    """Returns how far a step may move a weight, in a vector or a matrix, by rounding alone."""
    return max(of_dimensions(run.optimizer, number).rounding_move or 0.0 for number in (1, 2))


def _compares_updates(run: Run) -> bool:
    return run.optimizer.rounding_move is None and run.dtype == "float64"


def _judge_curve(trial: Trial) -> Parity:
    """Judges the losses, the batches and the last state of a run."""
    run, taken, state, wanted = trial.run, trial.taken, trial.seen.state, None
    if trial.is_whole:
        wanted = trial.wanted.state.params
        wanted = wanted if trial.in_own_names is None else trial.in_own_names(wanted)
        wanted = {**wanted, **trial.wanted.state.buffers} if trial.has_oracle else wanted
    parity = judge(
        trial.reference.name,
        run.dtype,
        trial.seen.log.first,
        taken.losses,
        taken.wanted,
        taken.params,
        wanted,
        taken.noise,
        gradient_error(run),
    )
    parity = judge_batches(parity, trial.seen.log, trial.wanted.log)
    if trial.has_oracle and trial.is_whole and trial.wanted.state.buffers:
        parity = _judge_statistics(run, parity, state, trial.wanted.state)
    if trial.is_whole and _compares_updates(run):
        parity = judge_updates(trial.reference, parity, state, trial.wanted.state, trial.start(), trial.alone)
    return parity


def _judge_rest(trial: Trial, parity: Parity) -> Parity:
    """Judges what a curve cannot show within the bounds of its dtype."""
    run, rerun = trial.run, trial.rerun
    if rerun is not None and run.arithmetic != run.dtype and not trial.has_oracle:
        from samestep.common.judging.missed import find_step_unseen

        if missed := find_step_unseen(trial, parity, rerun):
            return dataclasses.replace(parity, passed=False, **missed._asdict())
    flaws = filter(None, (each.find_flaw(trial.seen.state) for each in used(run.techniques)))
    if parity.passed and (flaw := next(flaws, "")):
        return dataclasses.replace(parity, passed=False, reason=flaw)
    if parity.passed and trial.skipped is not None and not parity.is_amplified:
        said = f"judged to step {trial.skipped}, whose update the loss scaler skipped"
        return dataclasses.replace(parity, reason=said)
    return parity


def _judge_statistics(run: Run, parity: Parity, state: TrainState, wanted: TrainState) -> Parity:
    kernels = {n: wanted.params[n] for n, param in run.workload.model.params().items() if param.role == "kernel"}
    allowed = statistics_noise(run, relative_distance(state.params, kernels))
    if allowed is None:
        return parity
    return judge_statistics(parity, relative_distance(state.buffers, wanted.buffers), allowed)
