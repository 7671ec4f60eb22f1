"""How far apart two steps from the same state are, in multiples of what rounding explains."""

import dataclasses
import math
from collections.abc import Iterator

import numpy as np

from samestep.common.batch import Batch
from samestep.common.judging.parity import LEAST_LOSS, LOSS_BOUND
from samestep.common.judging.roundoff import noise_of, residual_noise
from samestep.common.program import RESIDUAL, SHARED, Arrays, TrainState
from samestep.common.reference.features.applied import share_left
from samestep.common.reference.program import TrainingProgram
from samestep.common.request import UNIT_ROUNDOFF
from samestep.common.strategy import Run
from samestep.common.techniques.local_steps.ranks import kept, num_apart, of_rank
from samestep.common.techniques.used import gradient_error

ROUNDINGS_TO_STORE = 2
"""The number of roundings of a parameter in its update: one by the weight decay, one by the move."""


@dataclasses.dataclass(frozen=True, eq=False)
class StepOutcome:
    """The outcome of a step.

    Attributes:
        loss: The loss of the step.
        after: The state after the step.
    """

    loss: float
    after: TrainState


def take(program: TrainingProgram, batch: Batch) -> StepOutcome:
    """Takes one step.

    Args:
        program: The oracle, or a mutant.
        batch: The global batch.
    """
    program.step(batch)
    (loss,) = program.losses()
    return StepOutcome(loss, program.state())


def distance(
    run: Run, before: TrainState, seen: StepOutcome, candidate: StepOutcome, enough: float = math.inf
) -> float:
    """Returns the largest deviation of loss, moves and residuals, in multiples of what rounding explains.

    Args:
        run: The run.
        before: The state that both steps start from.
        seen: The step of a run.
        candidate: The step that the run may have taken.
        enough: The search ends at a deviation of at least this size.
    """
    deviations = _deviations(run, before, seen, candidate)
    largest = next(deviations)
    while largest < enough and (deviation := next(deviations, None)) is not None:
        largest = max(largest, deviation)
    return largest


def _deviations(run: Run, before: TrainState, seen: StepOutcome, candidate: StepOutcome) -> Iterator[float]:
    """Yields the deviations of the loss, of each rank's weights and optimizer state, and of everything else in the states."""
    noise, move_noise = noise_of(run)
    states = (before, seen.after, candidate.after)
    yield loss_apart(run, seen, candidate)
    for rank in range(num_apart(candidate.after)):
        origin, own, wanted = (of_rank(state, rank) for state in states)
        yield apart(run, own.params, wanted.params, origin.params, move_noise)
        for slot, now in wanted.slots.items():
            yield apart(run, own.slots[slot], now, origin.slots[slot], noise)
    origin, own, wanted = (kept(state, SHARED) for state in states)
    if origin and own and wanted:
        yield apart(run, own, wanted, origin, move_noise)
    yield statistics_apart(run, before, seen, candidate)
    yield _relative(*residuals_of(seen.after, candidate.after)) / residual_noise(run)


def loss_apart(run: Run, seen: StepOutcome, candidate: StepOutcome) -> float:
    """Returns the deviation of the loss in multiples of its bound; the arguments are those of `distance`."""
    size = max(abs(candidate.loss), LEAST_LOSS[run.dtype])
    return abs(seen.loss - candidate.loss) / ((gradient_error(run) or LOSS_BOUND[run.dtype]) * size)


def statistics_apart(run: Run, before: TrainState, seen: StepOutcome, candidate: StepOutcome) -> float:
    """Returns the deviation of the running statistics, in multiples of what rounding makes of a batch's own statistics.

    It is relative to what the batch's statistics add to the running ones, not to the difference of the two.

    Args:
        run: The run.
        before: The state that both steps start from.
        seen: The step of a run.
        candidate: The step that the run may have taken.
    """
    left = {name: share_left(run) * value for name, value in before.buffers.items()}
    noise, _ = noise_of(run)
    return apart(run, seen.after.buffers, candidate.after.buffers, left, noise)


def apart(run: Run, seen: Arrays, candidate: Arrays, origin: Arrays, noise: float) -> float:
    """Returns the distance of two points in multiples of what rounding explains: a share of the move, and of storage.

    Args:
        run: The run.
        seen: One point, by name.
        candidate: The other point.
        origin: The point from which both moved.
        noise: How far rounding may change the move, relative to its length.
    """
    stored = ROUNDINGS_TO_STORE * UNIT_ROUNDOFF[run.dtype] * _length(candidate)
    explained = noise * _length(_minus(candidate, origin)) + stored
    difference = _length(_minus(seen, candidate))
    return difference / explained if explained else math.inf if difference else 0.0


def _minus(one: Arrays, other: Arrays) -> Arrays:
    return {name: value.astype(np.float64) - other[name] for name, value in one.items()}


def _length(arrays: Arrays) -> float:
    return math.sqrt(sum(float((value * value).sum()) for value in arrays.values()))


def _relative(seen: Arrays, candidate: Arrays, origin: Arrays) -> float:
    """Returns the distance of two points, relative to the distance of the second one from the origin."""
    difference, length = _length(_minus(seen, candidate)), _length(_minus(candidate, origin))
    return difference / length if length else math.inf if difference else 0.0


def residuals_of(*states: TrainState) -> tuple[Arrays, ...]:
    """Returns the residuals of all ranks in each state, and zeros of the same shapes; a missing residual counts as zero."""
    opening = f"{RESIDUAL}/"
    kept = [
        {f"{rank}/{key}": own[key] for rank, own in enumerate(state.local) for key in own if key.startswith(opening)}
        for state in states
    ]
    zeros = {name: np.zeros(value.shape) for each in kept for name, value in each.items()}
    return (*(zeros | each for each in kept), zeros)
