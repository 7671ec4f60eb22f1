"""Finds why a run is not the same step: its first bad step is replayed against the oracle and against every mutant."""

import dataclasses
import functools
from collections.abc import Callable

import numpy as np

from samestep.common.batch import Batch, batches
from samestep.common.program import Arrays, TrainState
from samestep.common.reference.mutants import MUTANTS, Context
from samestep.common.reference.program import TrainingProgram
from samestep.common.strategy import Run
from samestep.common.workload.data.dataset import load

MATCH = {"float64": 1e-6, "float32": 5e-3}
"""How far a step may be from a mutant's to be taken for it, relative to the length of the step; in float32 Adam's
division of small gradients amplifies rounding to about a thousandth of the step."""
HEALTHY = {"float64": 1e-9, "float32": 5e-3}

Replay = Callable[[int], tuple[list[float], TrainState]]
"""Repeats a run up to a step count; returns its losses and its state there."""


@dataclasses.dataclass(frozen=True, eq=False)
class Step:
    """A step that was taken.

    Attributes:
        loss: What it saw.
        after: The state that it left.
    """

    loss: float
    after: TrainState


@dataclasses.dataclass(frozen=True, eq=False)
class ReplayedStep:
    """A step to be replayed.

    Attributes:
        before: The state that it starts from.
        batch: What it trains on.
        context: What the mutants may use beyond that.
    """

    before: TrainState
    batch: Batch
    context: Context


def diagnose(run: Run, first: int, bad: int, start: TrainState, replay: Replay) -> str:
    """Names the likeliest cause in one sentence.

    A loss that is off at step k was computed wrongly there, or the update of step k-1 was wrong; both are replayed from
    the state that the run itself had reached, so earlier rounding does not count.

    Args:
        run: What was trained.
        first: The number of the run's first step.
        bad: The first step whose loss deviates, or the last step if only the weights do.
        start: The state that the run started from.
        replay: Repeats the run.
    """
    begin = max(first, bad - 1)
    oldest = max(first, begin - 1)
    split = load(run.workload.data)
    stream = batches(split.train_inputs, split.train_targets, run.batch_size, run.seed, oldest)
    batch_of = dict(zip(range(oldest, bad + 2), stream, strict=False))

    @functools.cache
    def reached(number: int) -> tuple[list[float], TrainState]:
        return ([], start) if number == first else replay(number)

    for number in range(begin, bad + 1):
        before = reached(number)[1]
        losses, after = reached(number + 1)
        last_gradients: Arrays | None = None
        if number > first:
            _, last_gradients = _program(run, reached(number - 1)[1]).gradients(batch_of[number - 1])
        context = Context(run.num_devices, batch_of[number + 1], last_gradients)
        cause = _compare(run, ReplayedStep(before, batch_of[number], context), Step(losses[number - first], after))
        if cause:
            return f"step {number}: {cause}"
    return (
        "every step agrees with the oracle's when replayed from the run's own state: rounding was amplified on the way"
    )


def _program(run: Run, state: TrainState) -> TrainingProgram:
    program = TrainingProgram(run)
    program.restore(state)
    return program


def _compare(run: Run, replayed: ReplayedStep, seen: Step) -> str:
    """The cause of one step's deviation; "" if it does not deviate."""
    right = _taken(_program(run, replayed.before), replayed.batch)
    if _distance(replayed.before, seen, right) <= HEALTHY[run.dtype]:
        return ""
    best, sentence = MATCH[run.dtype], ""
    for mutant in MUTANTS:
        program = _program(run, replayed.before)
        if mutant.apply(program, replayed.context):
            distance = _distance(replayed.before, seen, _taken(program, replayed.batch))
            if distance < best:
                best, sentence = distance, mutant.sentence.format(devices=replayed.context.devices)
    return sentence or _describe(run, replayed, seen, right)


def _taken(program: TrainingProgram, batch: Batch) -> Step:
    program.step(batch)
    (loss,) = program.losses()
    return Step(loss, program.state())


def _distance(before: TrainState, seen: Step, candidate: Step) -> float:
    """The largest relative deviation of the loss, of the weights' move, and of each slot."""
    deviations = [abs(seen.loss - candidate.loss) / abs(candidate.loss)]
    deviations.append(_relative(seen.after.params, candidate.after.params, before.params))
    for slot, values in candidate.after.slots.items():
        deviations.append(_relative(seen.after.slots[slot], values, None))
    return max(deviations)


def _relative(seen: Arrays, candidate: Arrays, origin: Arrays | None) -> float:
    difference = sum(float(((seen[n].astype(np.float64) - candidate[n]) ** 2).sum()) for n in candidate)
    length = sum(float(((candidate[n] - (origin[n] if origin else 0)) ** 2).sum()) for n in candidate)
    return float(np.sqrt(difference / length)) if length else float(difference > 0)


def _describe(run: Run, replayed: ReplayedStep, seen: Step, right: Step) -> str:
    """What is seen, where no mutant fits: the loss, else the gradients (read back from the slots), else the update."""
    if abs(seen.loss - right.loss) > MATCH[run.dtype] * abs(right.loss):
        return f"the forward pass gives a loss of {seen.loss:.6g} where the oracle's gives {right.loss:.6g} from the same weights"
    _, wanted = _program(run, replayed.before).gradients(replayed.batch)
    implied = _implied_gradients(run, replayed.before, seen.after)
    ratios = {n: float((implied[n] * g).sum() / (g * g).sum()) for n, g in wanted.items() if (g * g).sum() > 0}
    values = np.array(list(ratios.values()))
    off = {n: float(np.linalg.norm(implied[n] - g) / np.linalg.norm(g)) for n, g in wanted.items() if n in ratios}
    if max(off.values()) <= MATCH[run.dtype]:
        return "loss and gradients agree with the oracle's: the update is another one"
    if np.ptp(values) <= MATCH[run.dtype] * abs(values.mean()):
        return f"every gradient is {values.mean():.3f} x the oracle's"
    worst = max(off, key=lambda name: off[name])
    return (
        f"the gradient of {worst} is off by {off[worst]:.1%} ({ratios[worst]:.3f} x the oracle's along it), most of all"
    )


def _implied_gradients(run: Run, before: TrainState, after: TrainState) -> Arrays:
    """The gradients that must have entered the first slot, since every slot is a running sum of them."""
    spec = run.optimizer
    slot, keep, take = (
        ("momentum", spec.momentum, 1.0) if "momentum" in spec.slots else ("first_moment", spec.beta1, 1 - spec.beta1)
    )
    old, new = before.slots[slot], after.slots[slot]
    return {n: (new[n].astype(np.float64) - keep * old[n]) / take for n in new}
