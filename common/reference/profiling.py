"""Records the activities of the oracle. It has no profiler, and computes whenever it does not gather a batch."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from samestep.common.runtime.step_parts import AccountedSteps, StepParts
from samestep.common.timeline import Activity


def record(take: Callable[[], None], devices: Sequence[str], keep: Path | None) -> list[Activity]:
    """Takes steps and records them; see `Record`. There is no profile to keep."""
    start = time.time_ns()
    take()
    return [Activity(0, "compute", "step", start, time.time_ns())]


def step_parts(take: Callable[[], AccountedSteps]) -> StepParts:
    """Takes steps and finds their parts; see `SplitSteps`. NumPy and the Python code around it are one part."""
    return take().parts_by_threads()
