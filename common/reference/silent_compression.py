"""Mistakes of a compressed exchange that raise no error, as mutants."""

from collections.abc import Sequence
from functools import partial

import numpy as np

from samestep.common.program import Arrays
from samestep.common.reference.compression import Ranks
from samestep.common.reference.mutants import Context
from samestep.common.reference.program import TrainingProgram
from samestep.common.strategy import Run
from samestep.common.workload.compression import RESIDUAL


def error_feedback_dropped(program: TrainingProgram, context: Context) -> bool:
    """Keeps nothing of what an exchange left out of the ranks' gradients.

    Args:
        program: The program to be made wrong.
        context: Ignored.
    """
    right = program.exchange

    def exchange(run: Run, parts: Sequence[Arrays], local: Sequence[Arrays]) -> tuple[Arrays, tuple[Arrays, ...]]:
        total, kept = right(run, parts, _without_residuals(local))
        return total, _without_residuals(kept)

    program.exchange = exchange
    return program.run.techniques.compress in ("int8", "powersgd")


def _without_residuals(local: Sequence[Arrays]) -> tuple[Arrays, ...]:
    return tuple({k: v for k, v in own.items() if not k.startswith(f"{RESIDUAL}/")} for own in local)


def scale_by_rank(program: TrainingProgram, context: Context) -> bool:
    """Scales the int8 of each rank by its own largest number; the sum takes the first rank's scale.

    Args:
        program: The program to be made wrong.
        context: Ignored.
    """
    program.exchange = partial(program.exchange, largest_of=_own_largest)
    return program.run.techniques.compress == "int8"


def _own_largest(values: Ranks) -> list[float]:
    return [float(np.abs(value).max()) for value in values]
