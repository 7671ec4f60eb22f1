"""Asks the diagnosis about every step of healthy runs, which are real programs of both frameworks with nothing wrong."""

import dataclasses
import itertools
import math
import os
import random
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.mistakes.grid import names_in
from benchmarks.mistakes.steps_worker import folder_of
from samestep.common.batch import Batch, batches
from samestep.common.cell import Cell
from samestep.common.errors import ConfigError
from samestep.common.program import TrainState
from samestep.common.reference.diagnosis import diagnose
from samestep.common.reference.distance import StepOutcome, distance, take
from samestep.common.reference.known import KNOWN
from samestep.common.reference.mutants import Context, Mutant
from samestep.common.reference.program import TrainingProgram
from samestep.common.request import RunConfig, launch_of
from samestep.common.run import as_config, parse
from samestep.common.runtime.directory import open_run
from samestep.common.runtime.parent.launcher import Launcher
from samestep.common.runtime.start import initial_state
from samestep.common.runtime.state_file import read_state
from samestep.common.runtime.topology import UNEVALUATED
from samestep.common.steps.log import read_log
from samestep.common.strategy import Run
from samestep.common.workload.data.dataset import load

WORKER = "benchmarks.mistakes.steps_worker"
GPT = "prose-gpt+layers=1+heads=2+width=16+context=8"
WORKLOADS = (
    "digits-mlp+width=16",
    "digits-mlp+width=16+activation=relu+dropout=0.2",
    "digits-mlp+width=16+norm=batch",
    "mnist-cnn+filters=2+hidden=8",
    "mnist-cnn+filters=2+hidden=8+norm=batch+activation=relu+pooling=max",
    GPT,
    f"{GPT}+tied=true+dropout=0.1+ignored=0.3",
    "flights-ranker+embedding=2+hash_buckets=64",
    "synthetic-regression+width=16",
)
TECHNIQUES = (
    "",
    "+accumulation_steps=2+clip_norm=0.05",
    "+learning_rate_schedule=cosine+warmup_steps=2",
    "+compress=int8",
    "+batch_norm=sync",
    "+precision=bf16",
)
ROWS = {
    "torch": ("single", "ddp", "c10d", "dp") * 4 + ("zero1", "fsdp", "tp"),
    "tf": ("single",) * 4 + ("mirrored",),
}
"""The rows to draw from; rows that start fast appear four times."""
FRAMEWORKS = ("torch",) * 4 + ("tf",)
STEPS = (3, 8)
"""The least and the largest number of steps of a run."""


@dataclasses.dataclass(frozen=True)
class Answer:
    """The answer of the diagnosis about one healthy run.

    Attributes:
        cell: Framework, row and techniques.
        workload: The workload of the run.
        dtype: The dtype of the run.
        distance: The largest distance of its steps from the oracle's, in multiples of what rounding explains.
        left: The least share of the last step's distance that a known mistake leaves. A mistake without effect leaves all
            of it; one that leaves less than a tenth would be named if the step were farther off than rounding explains.
        named: The known mistakes that the diagnosis named.
    """

    cell: str
    workload: str
    dtype: str
    distance: float
    left: float
    named: tuple[str, ...]


def requests() -> Iterator[tuple[str, RunConfig]]:
    """Yields random cells with their requests, without end and always the same ones."""
    draw = random.Random(0)
    for seed in itertools.count():
        framework = draw.choice(FRAMEWORKS)
        row, techniques = draw.choice(ROWS[framework]), draw.choice(TECHNIQUES)
        base = RunConfig(
            workload=draw.choice(WORKLOADS),
            optimizer=draw.choice(("adamw", "sgd")),
            dtype=draw.choice(("float32", "float64")),
            devices=1 if row == "single" else 2,
            batch_size=16,
            steps=draw.randint(*STEPS),
            seed=seed,
            parity=False,
            keep_state=True,
        )
        cell = f"{framework}:{row}{techniques}"
        try:
            asked = Cell.parse(cell).apply_to(base)
            parse(asked)
        except ConfigError:  # the row does not support it
            continue
        yield cell, asked


def ask_all(core: int, asked: Sequence[tuple[str, RunConfig]]) -> list[Answer]:
    """Asks about several runs, all on one core.

    Args:
        core: The number of the core.
        asked: The cells with their requests.
    """
    os.sched_setaffinity(0, {core})
    with Launcher(worker=WORKER) as launcher:
        return [ask(launcher, cell, request) for cell, request in asked]


def ask(launcher: Launcher, cell: str, asked: RunConfig) -> Answer:
    """Takes a run and asks the diagnosis about each step, as if the verdict had been that the step is wrong.

    Args:
        launcher: The launcher of `WORKER`.
        cell: The cell, as drawn.
        asked: The request.
    """
    run, launch = parse(asked), launch_of(asked)
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch)
        open_run(directory, as_config(run, launch))
        launcher.execute(directory, run, launch, environment={UNEVALUATED: "1"})
        losses = read_log(directory).losses
        states = [initial_state(run, launch), *(read_state(folder_of(directory, n + 1)) for n in range(run.steps))]

    def replay(steps: int) -> tuple[Sequence[float], TrainState]:
        return losses[:steps], states[steps]

    said = [diagnose(run, 0, bad, states[0], replay) for bad in range(1, run.steps, 2)]
    split = load(run.workload.data)
    stream = batches(split.train_inputs, split.train_targets, run.batch_size, run.seed)
    ahead = list(itertools.islice(stream, run.steps + 1))
    seen = [StepOutcome(loss, after) for loss, after in zip(losses, states[1:], strict=True)]
    away = [_away(run, states[n], seen[n], ahead[n]) for n in range(run.steps)]
    *_, earlier, before, _ = states
    gradients = TrainingProgram(run, earlier).gradients(ahead[-3])[1]
    context = Context(run.num_devices, ahead[-1], gradients, earlier)
    nearest = min(_away(run, before, seen[-1], ahead[-2], mutant, context) for mutant in KNOWN)
    left = nearest / away[-1] if away[-1] else math.inf
    named = dict.fromkeys(name for sentence in said for name in names_in(sentence, run.num_devices))
    return Answer(cell, asked.workload, run.dtype, max(away), left, tuple(named))


def _away(
    run: Run,
    before: TrainState,
    seen: StepOutcome,
    batch: Batch,
    mutant: Mutant | None = None,
    context: Context | None = None,
) -> float:
    """Returns the distance of a step from the oracle's, or from that of a mistake; infinite if it cannot be made here."""
    program = TrainingProgram(run, before)
    if mutant is not None and context is not None and not mutant.apply(program, context):
        return math.inf
    return distance(run, before, seen, take(program, batch))
