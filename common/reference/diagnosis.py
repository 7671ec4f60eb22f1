"""Finds why a run did not take the same steps: replays its first bad step with the oracle and every mutant."""

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np

from samestep.common.batch import Batch, batches
from samestep.common.errors import percent
from samestep.common.judging.parity import deviation, spell_apart
from samestep.common.judging.roundoff import noise_of
from samestep.common.program import Arrays, TrainState
from samestep.common.reference.distance import StepOutcome, distance, loss_apart, statistics_apart, take
from samestep.common.reference.features.ties import nearest_way, ties_of
from samestep.common.reference.known import KNOWN
from samestep.common.reference.mutants import Context
from samestep.common.reference.program import TrainingProgram
from samestep.common.reference.step import transform
from samestep.common.strategy import Run
from samestep.common.workload.data.dataset import load

UNEXPLAINED = 0.1
"""The largest share of a deviation that a known mistake may leave unexplained."""

PERTURBATION = 1e-8
"""The relative change of the initial weights with which amplification is measured: small, but far above rounding."""
MOST_MEASURED = 200
"""The largest number of steps over which amplification is measured."""

Replay = Callable[[int], tuple[Sequence[float], TrainState]]
"""Repeats a run up to a number of steps; returns its losses and its state after them."""
OneStep = Callable[[TrainState], tuple[float, TrainState]]
"""Takes one step from a state; returns its loss and the state after it."""


@dataclasses.dataclass(frozen=True, eq=False)
class ReplayedStep:
    """A step to be replayed.

    Attributes:
        before: The state that it starts from.
        batch: The batch that it trains on.
        context: What mutants may use beyond that.
    """

    before: TrainState
    batch: Batch
    context: Context


def diagnose(run: Run, first: int, bad: int, start: TrainState, replay: Replay) -> str:
    """Names the likeliest cause in one sentence.

    A loss that is off at step k was either computed wrongly there, or follows a wrong update of step k-1. Both are replayed from
    the state that the run itself had reached, so earlier rounding does not count. If a run that continued another one lost
    something, that shows in its first step.

    Args:
        run: The run.
        first: The number of the run's first step.
        bad: The first step whose loss deviates, or the last step if only the weights do.
        start: The state that the run started from.
        replay: Repeats the run.
    """
    split = load(run.workload.data)

    @functools.cache
    def batch_of(number: int) -> Batch:
        return next(batches(split.train_inputs, split.train_targets, run.batch_size, run.seed, number))

    @functools.cache
    def reached(number: int) -> tuple[Sequence[float], TrainState]:
        return ((), start) if number == first else replay(number)

    for number in dict.fromkeys((*range(max(first, bad - 1), bad + 1), *((first,) if first else ()))):
        before = reached(number)[1]
        losses, after = reached(number + 1)
        last_gradients, earlier = None, reached(number - 1)[1] if number > first else None
        if earlier is not None:
            _, last_gradients = TrainingProgram(run, earlier).gradients(batch_of(number - 1))
        context = Context(run.num_devices, batch_of(number + 1), last_gradients, earlier, first)
        cause = _compare(
            run, ReplayedStep(before, batch_of(number), context), StepOutcome(losses[number - first], after)
        )
        if cause:
            return f"step {number}: {cause}"
    return (
        f"every step agrees with the oracle's within {noise_of(run)[1]:.0e} of its length when replayed from the "
        "run's own state: the deviation that is left was amplified on the way, as rounding is"
    )


def find_bad_step(
    run: Run, numbers: Sequence[int], start: TrainState, replay: Replay, one_step: OneStep | None = None
) -> int | None:
    """Replays steps from the states that a run itself reached; returns the first that differs.

    Args:
        run: The run.
        numbers: The steps, in order.
        start: The state that the run started from.
        replay: Repeats the run.
        one_step: Takes the correct step; by default the oracle's.
    """
    split = load(run.workload.data)
    for number in numbers:
        before = start if number == start.step else replay(number)[1]
        losses, after = replay(number + 1)
        seen = StepOutcome(losses[number - start.step], after)
        if one_step:
            apart = distance(run, before, seen, StepOutcome(*one_step(before)))
        else:
            stream = batches(split.train_inputs, split.train_targets, run.batch_size, run.seed, before.step)
            apart = nearest_way(run, before, next(stream), seen)
        if not apart <= 1:
            return number
    return None


def measure_amplification(run: Run, steps: int, start: TrainState, move: float = PERTURBATION) -> tuple[float, int]:
    """Measures how much a small relative change of the initial weights changes the oracle's losses, relative to that change.

    Args:
        run: The run.
        steps: The number of steps to take; of long runs, only the first ones are measured.
        start: The state that the run started from.
        move: The relative change.

    Returns:
        The amplification, and how many tokens of the steps lie between two experts.
    """
    split, signs = load(run.workload.data), np.random.default_rng(1)
    curves, ties = [], ties_of(run)
    for size in (0.0, move):
        program = TrainingProgram(run, start)
        for each in program.programs:
            each.context.ties = None if size else ties
            for value in each.params.values():
                value *= 1 + size * signs.choice([-1.0, 1.0], value.shape)
        stream = batches(split.train_inputs, split.train_targets, run.batch_size, run.seed, start.step)
        for batch in itertools.islice(stream, min(steps, MOST_MEASURED)):
            program.step(batch)
        curves.append(program.losses())
    growth = max(deviation(moved, plain, run.dtype) for plain, moved in zip(*curves, strict=True)) / move
    return growth, len(ties.found)


def _compare(run: Run, replayed: ReplayedStep, seen: StepOutcome) -> str:
    """Returns the cause of one step's deviation; "" if the step does not deviate."""
    right = take(TrainingProgram(run, replayed.before), replayed.batch)
    deviation = distance(run, replayed.before, seen, right)
    return "" if deviation <= 1 else _name(run, replayed, seen, deviation) or _describe(run, replayed, seen, right)


def _name(run: Run, replayed: ReplayedStep, seen: StepOutcome, deviation: float) -> str:
    """Names the known mistake that makes this step, with others that make the same step here; "" if there is none.

    A known mistake is named if it makes the same step within rounding, and if it explains the deviation: one that makes no
    difference here explains nothing. Each is tried with one shard of the batch per device, and with one per replica or part of an
    example, which are fewer if the model or the examples are split. A single shard is the whole batch, so it is tried on one
    device only.
    """
    found: dict[str, tuple[float, StepOutcome]] = {}
    most = min(1.0, UNEXPLAINED * deviation)
    parts = (count for count in (run.mesh.replicas, run.mesh.parts("positions")) if count > 1)
    for count, mutant in itertools.product(dict.fromkeys((run.num_devices, *parts)), KNOWN):
        program = TrainingProgram(run, replayed.before)
        context = dataclasses.replace(replayed.context, devices=count)
        applied = [mutant.apply(each, context) for each in dict.fromkeys((program, *program.programs))]
        if any(applied):
            wrong = take(program, replayed.batch)
            left = distance(run, replayed.before, seen, wrong, most)
            if left < most:
                found[mutant.sentence.format(devices=count)] = left, wrong
    nearest = min(found, key=lambda text: found[text][0], default="")
    others = ((text, step) for text, (_, step) in found.items() if text != nearest)
    same = [text for text, step in others if distance(run, replayed.before, step, found[nearest][1]) <= UNEXPLAINED]
    return "; or, which is the same step here, ".join([nearest, *same])


def _describe(run: Run, replayed: ReplayedStep, seen: StepOutcome, right: StepOutcome) -> str:
    """Describes a step that fits no mutant: by its loss, else its gradients (read back from the slots), else its update."""
    if loss_apart(run, seen, right) > 1:
        found, wanted = spell_apart(seen.loss, right.loss)
        return f"the forward pass gives a loss of {found} where the oracle's gives {wanted} from the same weights"
    if run.optimizer.gradient_average is None:
        return "the loss agrees with the oracle's: the gradients, the running statistics or the update differ"
    gradients = transform(TrainingProgram(run, replayed.before).gradients(replayed.batch)[1], run.techniques)
    implied, (noise, _) = _implied_gradients(run, replayed.before, seen.after), noise_of(run)
    off = {name: _off(implied[name], 1.0, g) for name, g in gradients.items()}
    if max(off.values()) <= noise:
        kept = statistics_apart(run, replayed.before, seen, right)
        what = "the running statistics differ" if kept > 1 else "the update differs"
        return f"loss and gradients agree with the oracle's: {what}"
    ratio = sum(_dot(implied[n], g) for n, g in gradients.items()) / sum(_dot(g, g) for g in gradients.values())
    left = max(_off(implied[name], ratio, g) for name, g in gradients.items())
    if left <= max(noise, UNEXPLAINED * abs(ratio - 1)) < abs(ratio - 1):
        return f"every gradient is {_spell_ratio(ratio)} the oracle's"
    worst = max(off, key=lambda name: off[name])
    along = _dot(implied[worst], gradients[worst]) / (_dot(gradients[worst], gradients[worst]) or 1.0)
    size = percent(off[worst], 1) if off[worst] >= 1e-3 else f"{off[worst]:.1e} of its length"
    return f"the gradient of {worst} is off by {size} ({_spell_ratio(along)} the oracle's along it), most of all"


def _off(seen: np.ndarray, ratio: float, wanted: np.ndarray) -> float:
    """Returns how far a gradient is from a multiple of the wanted one, relative to the latter's length."""
    difference, length = (math.sqrt(_dot(x, x)) for x in (seen - ratio * wanted, wanted))
    return difference / length if length else math.inf if difference else 0.0


def _dot(one: np.ndarray, other: np.ndarray) -> float:
    return float((one * other).sum())


def _spell_ratio(ratio: float) -> str:
    """Spells a factor; if it is nearly 1, by its deviation from 1."""
    near = abs(ratio - 1) < 0.01
    return f"1 {'+' if ratio > 1 else '-'} {abs(ratio - 1):.1e} times" if near else f"{ratio:.3f} times"


def _implied_gradients(run: Run, before: TrainState, after: TrainState) -> Arrays:
    """Returns the gradients that must have entered the slot that is a running average of them."""
    assert run.optimizer.gradient_average is not None  # the reference takes no user's optimizer
    slot, keep, take = run.optimizer.gradient_average
    old, new = before.slots[slot], after.slots[slot]
    return {n: (new[n].astype(np.float64) - keep * old[n]) / take for n in new}
