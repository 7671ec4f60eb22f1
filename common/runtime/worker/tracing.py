"""The traced steps: a few more after everything that counts, under the profiler of the framework."""

import dataclasses
import importlib
import itertools
import time
from collections.abc import Iterator
from typing import cast

import numpy as np

from samestep.common.batch import Batch
from samestep.common.program import Program
from samestep.common.request import FRAMEWORKS, Launch
from samestep.common.runtime.directory import write_json
from samestep.common.runtime.process_file import ProcessFile
from samestep.common.runtime.topology import trace_file
from samestep.common.strategy import Run
from samestep.common.timeline import TRACED_STEPS, Activity, Record, Recording


@dataclasses.dataclass(frozen=True)
class TimedBatch:
    """A batch that notes when its rows are gathered; its attributes are those of `Batch`."""

    batch: Batch
    gathered: list[Activity]

    @property
    def step(self) -> int:
        """As of the batch."""
        return self.batch.step

    @property
    def indices(self) -> np.ndarray:
        """As of the batch."""
        return self.batch.indices

    @property
    def inputs(self) -> np.ndarray:
        """As of the batch."""
        return self.batch.inputs

    @property
    def targets(self) -> np.ndarray:
        """As of the batch."""
        return self.batch.targets

    def rows(self, index: int, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Gathers a shard; see `Batch.rows`."""
        start = time.time_ns()
        rows = self.batch.rows(index, count)
        self.gathered.append(Activity(0, "data", "gather rows", start, time.time_ns()))
        return rows


def trace(program: Program, run: Run, stream: Iterator[Batch], launch: Launch, file: ProcessFile) -> None:
    """Takes the traced steps and writes what this process did in them, for the parent to join.

    Args:
        program: Trained; everything that counts is measured.
        run: What was trained.
        stream: The batches to go on with.
        launch: Whether to keep the framework's own profile.
        file: The present process's.
    """
    record: Record = importlib.import_module(f"{FRAMEWORKS[run.framework]}.profiling").record
    steps: list[tuple[int, int]] = []
    gathered: list[Activity] = []

    def take() -> None:
        program.agree(0.0)  # all begin together
        for batch in itertools.islice(stream, TRACED_STEPS + 1):
            start = time.time_ns()
            program.step(cast(Batch, TimedBatch(batch, gathered)))
            program.sync()
            steps.append((start, time.time_ns()))
            file.beat(batch.step)
        steps.pop()  # a profiler that stops with a step misses what a thread of its own is about to note down

    devices = [row.device for row in program.footprint()]
    keep = file.directory / f"profile-{file.role}" if launch.profile else None
    activities = record(take, devices, keep)
    write_json(trace_file(file.directory, file.role), Recording(tuple(steps), (*gathered, *activities)))
