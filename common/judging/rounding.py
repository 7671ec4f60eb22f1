"""The second half of a verdict: whether a curve left its reference by rounding alone.

With a kink in the model, or at a high learning rate, two correct runs diverge: rounding tips a unit over, and every later step
adds to the difference. So a run whose curve is off is judged once more. A float32 run is judged by the same run in float64. In
float64, in two bytes, or where a row has no float64, single steps are replayed in the oracle from the states that the run
itself reached. Each must be the oracle's step, and the effect of perturbed initial weights on the oracle's own curve must
explain the whole deviation. A user's model in two bytes has no oracle. Its steps are replayed on one device, in two bytes as
well, where both round most numbers alike; the effect of perturbed weights is measured in float64.
"""

import dataclasses
import functools
import importlib
import math
import types
from collections.abc import Sequence

import numpy as np

from samestep.common.frameworks import FRAMEWORKS, ORACLE_FRAMEWORK
from samestep.common.judging.parity import LOSS_BOUND, Parity, deviation
from samestep.common.judging.reference_run import Rerun, without_counterpart
from samestep.common.judging.roundoff import EXPLAINED, SPREAD
from samestep.common.program import TrainState
from samestep.common.request import UNIT_ROUNDOFF
from samestep.common.strategy import Run
from samestep.common.techniques.used import flags_of, gradient_error

REPLAYED = 6
"""The largest number of steps that are replayed, from the first to the one that is off."""


def excuse(run: Run, parity: Parity, wanted: Sequence[float], start: TrainState, rerun: Rerun, alone: Rerun) -> Parity:
    """Judges once more a run whose curve is off; returns the same verdict unless rounding explains the deviation.

    Args:
        run: The run that left its reference.
        parity: The verdict on its curve.
        wanted: The reference's losses, from the run's first step on.
        start: The state that the run started from.
        rerun: Repeats steps of the run.
        alone: Takes steps of a user's model on one device, from any state.
    """
    bad = run.steps - 1 if parity.first_bad_step is None else parity.first_bad_step
    if parity.max_relative_loss is None:
        return parity
    error, has_oracle = gradient_error(run), run.workload.model.facts.has_oracle
    if error is None and run.dtype == "float32" and "float64" in run.strategy.dtypes:
        like = dataclasses.replace(run, dtype="float64", steps=bad + 1)
        shows = parity.first_bad_step is not None  # otherwise it is the state that is off
        agrees = _agrees_in_float64(like, wanted if shows else (), start, rerun)
        means = "in float64 it takes the reference's steps"
    elif error is None and not has_oracle:
        return parity
    else:
        agrees = _steps_agree(run, bad, start, rerun, alone)
        whose = "the reference's" if has_oracle else f"that of {without_counterpart(run).name} in {run.arithmetic}"
        means = f"every step that is replayed from its own state is {whose}"
    if not agrees:
        return parity
    rounded, moved, ties = EXPLAINED * UNIT_ROUNDOFF[run.dtype] if error is None else SPREAD * error, None, 0
    if has_oracle:
        moved, ties = _amplification(run, len(wanted), start, parity.max_relative_loss, rounded)
    elif error is not None:
        moved = _own_amplification(run, wanted, start, alone)
    if moved is not None and parity.max_relative_loss > moved * rounded:
        return parity
    size = f", tokens between two experts within rounding (a kink): {ties}" if ties else ""
    size += "" if moved is None else f", and a rounding of the first weights grows {moved:.1e} times"
    reason = f"rounding is amplified: {means}{size} ({parity.reason})"
    return dataclasses.replace(parity, passed=True, reason=reason, amplification=moved, is_amplified=True)


def _agrees_in_float64(run: Run, wanted: Sequence[float], start: TrainState, rerun: Rerun) -> bool:
    """Returns whether the same steps in float64 are the reference's, up to where they were compared in float32."""
    pairs = list(zip(rerun.steps(run).losses, wanted, strict=False))
    off = max((deviation(loss, right, "float64") for loss, right in pairs), default=math.inf)
    if off <= LOSS_BOUND["float64"]:
        return True
    return run.workload.model.facts.has_oracle and _steps_agree(run, run.steps - 1, start, rerun)


def _steps_agree(run: Run, bad: int, start: TrainState, rerun: Rerun, alone: Rerun | None = None) -> bool:
    """Returns whether steps that the reference replays from the run's own states agree with the run's steps."""
    diagnosis = load_diagnosis()
    count = min(REPLAYED, bad - start.step + 1)
    chosen = sorted({start.step + (bad - start.step) * i // max(1, count - 1) for i in range(count)})

    def take(before: TrainState) -> tuple[float, TrainState]:
        assert alone is not None
        one = without_counterpart(run)
        techniques = dataclasses.replace(one.techniques, **flags_of("gradient_error", run.techniques))
        one = dataclasses.replace(one, dtype=run.dtype, techniques=techniques, steps=before.step + 1)
        curve = alone.steps(one, before)
        return curve.losses[-1], curve.state

    own = None if run.workload.model.facts.has_oracle else take
    replay = functools.cache(functools.partial(replay_to, run, rerun))
    return diagnosis.find_bad_step(run, chosen, start, replay, own) is None


def load_diagnosis() -> types.ModuleType:
    """Imports the module that takes steps in the oracle, which this module may not import directly."""
    return importlib.import_module(FRAMEWORKS[ORACLE_FRAMEWORK] + ".diagnosis")


def replay_to(run: Run, rerun: Rerun, step: int) -> tuple[Sequence[float], TrainState]:
    """Repeats a run up to a step.

    Args:
        run: The run.
        rerun: Repeats steps of the run.
        step: The step to end before.

    Returns:
        Its losses, and its state there.
    """
    curve = rerun.steps(dataclasses.replace(run, steps=step))
    return curve.losses, curve.state


def _amplification(run: Run, steps: int, start: TrainState, off: float, rounded: float) -> tuple[float, int]:
    """Returns by how much a rounding of the first weights grows, and how many tokens lie between two experts within rounding."""
    diagnosis = load_diagnosis()
    moved, ties = diagnosis.measure_amplification(run, steps, start, diagnosis.PERTURBATION)
    if ties and off > moved * rounded:  # a smaller perturbation may redirect none of these tokens
        moved = max(moved, diagnosis.measure_amplification(run, steps, start, rounded)[0])
    return moved, ties


def _own_amplification(run: Run, wanted: Sequence[float], start: TrainState, alone: Rerun) -> float:
    """Returns by how much a rounding of the first weights grows in a user's model, whose curve without it is known."""
    diagnosis = load_diagnosis()
    signs, size = np.random.default_rng(1), diagnosis.PERTURBATION
    params = {name: value * (1 + size * signs.choice([-1.0, 1.0], value.shape)) for name, value in start.params.items()}
    steps = min(len(wanted), diagnosis.MOST_MEASURED)
    one = dataclasses.replace(without_counterpart(run), steps=start.step + steps)
    losses = alone.steps(one, dataclasses.replace(start, params=params)).losses
    return max(deviation(moved, plain, run.dtype) for moved, plain in zip(losses, wanted, strict=False)) / size
