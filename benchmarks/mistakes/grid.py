"""Runs the oracle with one known mistake at a time: whether the verdict catches it, and what the diagnosis calls it."""

import dataclasses
import functools
import math
from collections.abc import Iterator

import numpy as np

from samestep.common.batch import Batch, batches
from samestep.common.cell import Cell
from samestep.common.errors import ConfigError
from samestep.common.flags import split_spelling
from samestep.common.judging.parity import Parity, judge, judge_statistics, relative_distance
from samestep.common.judging.roundoff import statistics_noise
from samestep.common.program import Arrays, TrainState
from samestep.common.reference.diagnosis import diagnose
from samestep.common.reference.distance import StepOutcome, distance, take
from samestep.common.reference.known import KNOWN
from samestep.common.reference.mutants import Context, Mutant
from samestep.common.reference.program import TrainingProgram
from samestep.common.request import RunConfig
from samestep.common.run import parse
from samestep.common.strategy import Run
from samestep.common.workload.data.dataset import load

MARGIN = 100
"""A mistake matters if its step is this many times as far from the right one as rounding explains."""
STEPS = 5
CONTINUED = 3
"""The step at which a run that continues another one begins."""
SIZES = ("layers", "heads", "width", "context")
WORKLOADS = (
    "digits-mlp+width=8",
    "mnist-cnn+filters=2+hidden=8",
    "prose-gpt+layers=1+heads=2+width=8+context=8",
    "flights-ranker+embedding=2+hash_buckets=64",
    "synthetic-regression+width=8",
    "synthetic-gpt+layers=2+heads=2+width=16+context=8+vocabulary=11",
)
EVERYTHING = (
    (
        "prose-gpt+layers=1+heads=2+width=8+context=8+tied=true+dropout=0.2+ignored=0.5",
        {"accumulation_steps": "4", "clip_norm": "0.05", "warmup_steps": "4"},
    ),
    ("digits-mlp+width=8+norm=batch", {"accumulation_steps": "2", "clip_norm": "0.05", "compress": "int8"}),
)
"""Workloads and techniques that together allow most mistakes."""
VARIETIES = (
    ("adamw", 2, "float64", CONTINUED),
    ("sgd", 4, "float64", 0),
    ("adamw", 4, "float32", CONTINUED),
    ("sgd", 2, "float32", 0),
)
"""The varieties of settings: optimizer, devices, dtype, first step."""
ONCE = ("optimizer_state_lost", "step_count_lost", "running_statistics_lost")
"""Mistakes that a continued run makes only in its first step."""
MISTAKES = {mutant.name: mutant for mutant in KNOWN}


@dataclasses.dataclass(frozen=True)
class Setting:
    """The settings in which a mistake is made.

    Attributes:
        mistake: The name of the mistake.
        workload: The workload with sizes and features.
        techniques: The techniques, in the spelling of a cell.
        optimizer: One of OPTIMIZERS.
        devices: The number of devices.
        dtype: One of DTYPES.
        first: The first step; if it is above 0, the run continues another one.
        seed: The seed of the run.
    """

    mistake: str
    workload: str
    techniques: str
    optimizer: str
    devices: int
    dtype: str
    first: int
    seed: int = 0

    def __str__(self) -> str:
        """Returns the settings in one line."""
        return (
            f"{self.workload}{self.techniques} {self.optimizer} {self.dtype} devices={self.devices} first={self.first}"
        )

    def read(self) -> Run:
        """Returns the run of these settings.

        Raises:
            ConfigError: The workload does not support what the mistake needs.
        """
        steps = self.first + STEPS
        base = RunConfig(workload=self.workload, optimizer=self.optimizer, dtype=self.dtype, seed=self.seed)
        base = dataclasses.replace(base, devices=self.devices, batch_size=16, steps=steps)
        return parse(Cell.parse(f"torch:ddp{self.techniques}").apply_to(base))


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The outcome of a run with a mistake.

    Attributes:
        cell: The settings of the run.
        farthest: The largest distance of its steps from the right ones, in multiples of what rounding explains; infinite
            if it diverged.
        is_caught: Whether the verdict was that the steps are not the same.
        named: The mistakes that the diagnosis named.
    """

    cell: Setting
    farthest: float
    is_caught: bool
    named: tuple[str, ...]

    @property
    def matters(self) -> bool:
        """Whether the mistake has to be caught and named."""
        return MARGIN <= self.farthest < math.inf


def cells() -> Iterator[Setting]:
    """Yields every mistake in its own cell, there with other workloads, and with everything else, in four varieties."""
    for mutant in KNOWN:
        name, given = split_spelling(mutant.cell) if mutant.cell else ("", {})
        sizes = {field: given.pop(field) for field in SIZES if field in given}
        own = [(f"{name}{_spell(sizes)}", given)] if name else []
        everywhere = [(workload, given) for workload in WORKLOADS]
        beside = [(workload, {**techniques, **given}) for workload, techniques in EVERYTHING]
        for workload, techniques in (*own, *everywhere, *beside):
            for optimizer, devices, dtype, first in VARIETIES:
                yield Setting(mutant.name, workload, _spell(techniques), optimizer, devices, dtype, first)


def _spell(fields: dict[str, str]) -> str:
    return "".join(f"+{name}={value}" for name, value in fields.items())


def names_in(sentence: str, devices: int) -> tuple[str, ...]:
    """Returns the known mistakes that a diagnosis names.

    Args:
        sentence: The diagnosis.
        devices: The devices of the run.
    """
    return tuple(mutant.name for mutant in KNOWN if mutant.sentence.format(devices=devices) in sentence)


def make(cell: Setting) -> Outcome | None:
    """Makes a mistake in a cell; returns None if it cannot be made there.

    Args:
        cell: The cell.
    """
    try:
        run = cell.read()
    except ConfigError:
        return None
    split = load(run.workload.data)

    @functools.cache
    def batch_of(number: int) -> Batch:
        return next(batches(split.train_inputs, split.train_targets, run.batch_size, run.seed, number))

    start = _Trained(run, 0, TrainingProgram(run).state())
    for number in range(cell.first):
        start.step(None, batch_of(number), batch_of(number + 1))
    right, wrong = (_Trained(run, cell.first, start.states[-1]) for _ in range(2))
    with np.errstate(all="ignore"):  # some runs diverge
        for number in range(cell.first, run.steps):
            right.step(None, batch_of(number), batch_of(number + 1))
            wrong.step(MISTAKES[cell.mistake], batch_of(number), batch_of(number + 1))
    if not wrong.is_wrong:
        return None
    if not all(map(math.isfinite, wrong.losses)):
        return Outcome(cell, math.inf, True, ())
    verdict = _judged(cell.first, right, wrong)
    bad = run.steps - 1 if verdict.first_bad_step is None else verdict.first_bad_step
    sentence = diagnose(run, cell.first, bad, wrong.states[0], wrong.replay)
    return Outcome(cell, wrong.farthest, not verdict.passed, names_in(sentence, run.num_devices))


def _judged(first: int, right: "_Trained", wrong: "_Trained") -> Parity:
    """Returns the verdict on the curve and the last state of a run."""
    run, kept, wanted = right.run, wrong.states[-1], right.states[-1]
    reached = (kept.params | kept.buffers, wanted.params | wanted.buffers)
    verdict = judge("oracle", run.dtype, first, wrong.losses, right.losses, *reached)
    kernels = {n: wanted.params[n] for n, param in run.workload.model.params().items() if param.role == "kernel"}
    allowed = statistics_noise(run, relative_distance(kept.params, kernels))
    away = relative_distance(kept.buffers, wanted.buffers)
    return verdict if allowed is None else judge_statistics(verdict, away, allowed)


class _Trained:
    """A run that is being trained, with every state that it reached."""

    def __init__(self, run: Run, first: int, start: TrainState) -> None:
        self.run, self.first = run, first
        self.states, self.losses = [start], list[float]()
        self.is_wrong, self.farthest = False, 0.0
        self._last: Arrays | None = None
        self._draw = np.random.default_rng(run.seed)

    def step(self, mistake: Mutant | None, batch: Batch, after: Batch) -> None:
        """Takes a step, rounded to the dtype, with a mistake if one is given and can be made."""
        before, earlier = self.states[-1], self.states[-2] if len(self.states) > 1 else None
        right = taken = take(TrainingProgram(self.run, before), batch)
        if mistake is not None:
            program, context = (
                TrainingProgram(self.run, before),
                Context(self.run.num_devices, after, self._last, earlier, self.first),
            )
            is_over = mistake.name in ONCE and batch.step > self.first > 0
            self._last = TrainingProgram(self.run, before).gradients(batch)[1]
            if not is_over and mistake.apply(program, context):
                taken, self.is_wrong = take(program, batch), True
        taken = StepOutcome(taken.loss * (1 + 1e-15), self._rounded(before, taken.after))
        self.farthest = max(self.farthest, distance(self.run, before, taken, right))
        self.losses.append(taken.loss)
        self.states.append(taken.after)

    def replay(self, steps: int) -> tuple[list[float], TrainState]:
        """Returns the losses and the state of the run up to a step."""
        return self.losses[: steps - self.first], self.states[steps - self.first]

    def _rounded(self, before: TrainState, after: TrainState) -> TrainState:
        """Returns a state with rounding noise: that of storing float32, or 1e-13 of each change."""

        def noisy(now: Arrays, old: Arrays) -> Arrays:
            if self.run.dtype == "float32":
                return {name: value.astype(np.float32) for name, value in now.items()}
            return {n: v + 1e-13 * self._draw.normal(size=v.shape) * np.abs(v - old[n]) for n, v in now.items()}

        slots = {slot: noisy(values, before.slots[slot]) for slot, values in after.slots.items()}
        params, buffers = noisy(after.params, before.params), noisy(after.buffers, before.buffers)
        return dataclasses.replace(after, params=params, slots=slots, buffers=buffers)
