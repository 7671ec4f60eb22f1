"""Takes a few more steps after all measurements, to find the parts of a step and to record a trace."""

import importlib
import itertools
import time
from collections.abc import Iterator

import numpy as np

from samestep.common.batch import WHOLE, Batch, BatchPart
from samestep.common.program import Program
from samestep.common.request import FRAMEWORKS, Launch
from samestep.common.runtime.directory import write_json
from samestep.common.runtime.process_file import ProcessFile
from samestep.common.runtime.step_parts import AccountedSteps, SplitSteps, StepParts, read_threads, used
from samestep.common.runtime.topology import trace_file
from samestep.common.strategy import Run
from samestep.common.timeline import TRACED_STEPS, Activity, Record, Recording

_MOST_STEPS, _MOST_SECONDS, _MOST_SHARE = 20, 0.1, 0.1
"""The most steps whose parts are found, their most seconds, and their largest share of a run's steps; at least one is taken."""


def measure_parts(
    program: Program, run: Run, stream: Iterator[Batch], step_seconds: float, devices: int, file: ProcessFile
) -> StepParts:
    """Takes a few steps and finds how their seconds are spent; a step before them, under the same profiler, does not count.

    Args:
        program: The program, trained, with everything that counts measured.
        run: The run.
        stream: The batches that come next.
        step_seconds: How long a timed step took this process.
        devices: How many devices this process drives, times the threads of each.
        file: The file of the present process.
    """
    in_time = int(_MOST_SECONDS / max(program.agree(step_seconds), 1e-6))
    count = max(1, min(_MOST_STEPS, in_time, int(_MOST_SHARE * run.steps)))
    count += -count % run.techniques.steps_of_period  # whole periods
    split: SplitSteps = importlib.import_module(f"{FRAMEWORKS[run.framework]}.profiling").step_parts

    def take() -> AccountedSteps:
        program.step(next(stream))
        program.sync()
        before, start = read_threads(), time.time_ns()
        for batch in itertools.islice(stream, count):
            program.step(batch)
            file.beat(batch.step)
        program.sync()
        end, threads = time.time_ns(), used(before, read_threads())
        return AccountedSteps(start, end, count, threads, len(run.strategy.topology(run)) > 1, devices)

    return split(take)


def timed(batch: Batch, gathered: list[Activity]) -> Batch:
    """Makes a batch note when its rows are gathered, and returns it.

    Args:
        batch: The batch of one step.
        gathered: The list that receives the notes.
    """
    gather = batch.rows

    def rows(part: BatchPart = WHOLE) -> tuple[np.ndarray, np.ndarray]:
        start = time.time_ns()
        found = gather(part)
        gathered.append(Activity(0, "data", "gather rows", start, time.time_ns()))
        return found

    object.__setattr__(batch, "rows", rows)  # it is frozen; a wrapper would have to follow its every change
    return batch


def trace(program: Program, run: Run, stream: Iterator[Batch], launch: Launch, file: ProcessFile) -> None:
    """Takes the traced steps and writes what this process did in them, for the parent to join.

    Args:
        program: The program, trained, with everything that counts measured.
        run: The run.
        stream: The batches that come next.
        launch: How the run was started; says whether to keep the framework's own profile.
        file: The file of the present process.
    """
    record: Record = importlib.import_module(f"{FRAMEWORKS[run.framework]}.profiling").record
    steps: list[tuple[int, int]] = []
    gathered: list[Activity] = []

    def take() -> None:
        program.agree(0.0)  # all begin together
        for batch in itertools.islice(stream, TRACED_STEPS + 1):
            start = time.time_ns()
            program.step(timed(batch, gathered))
            program.sync()
            steps.append((start, time.time_ns()))
            file.beat(batch.step)
        steps.pop()  # a profiler that stops with a step misses what its own thread has yet to record

    devices = [row.device for row in program.footprint()]
    keep = file.directory / f"profile-{file.role}" if launch.profile else None
    activities = record(take, devices, keep)
    write_json(trace_file(file.directory, file.role), Recording(tuple(steps), (*gathered, *activities)))
