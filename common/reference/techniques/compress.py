"""Known mistakes in a compressed exchange that raise no error."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from samestep.common.program import RESIDUAL, Arrays
from samestep.common.reference.mutants import GPT, Context, in_cell
from samestep.common.reference.program import TrainingProgram
from samestep.common.strategy import Run
from samestep.common.techniques.compress.statement import Ranks, exchange

if TYPE_CHECKING:
    from samestep.common.techniques.technique import Statement

_INT8 = f"{GPT}+compress=int8"


def error_feedback_dropped(program: TrainingProgram, context: Context) -> bool:
    """Drops what an exchange leaves out of the ranks' gradients.

    Args:
        program: The program to be made wrong.
        context: Ignored.
    """

    def drop(run: Run, parts: Sequence[Arrays], local: Sequence[Arrays]) -> tuple[Arrays, tuple[Arrays, ...]]:
        total, kept = exchange(run, parts, _without_residuals(local))
        return total, _without_residuals(kept)

    return _replace_exchange(program, ("int8", "powersgd"), drop)


def _without_residuals(local: Sequence[Arrays]) -> tuple[Arrays, ...]:
    return tuple({k: v for k, v in own.items() if not k.startswith(f"{RESIDUAL}/")} for own in local)


def scale_by_rank(program: TrainingProgram, context: Context) -> bool:
    """Makes each rank scale its int8 by its own largest number, while the sum uses the scale of the first rank.

    Args:
        program: The program to be made wrong.
        context: Ignored.
    """
    return _replace_exchange(program, ("int8",), partial(exchange, largest_of=_own_largest))


def _own_largest(values: Ranks) -> list[float]:
    return [float(np.abs(value).max()) for value in values]


def _replace_exchange(program: TrainingProgram, methods: Sequence[str], wrong: "Statement") -> bool:
    program.exchange = wrong
    return program.run.techniques.compress in methods


_SENTENCES = {
    "error_feedback_dropped": "error feedback is dropped: what compression left out of a gradient is not added to the next one",
    "scale_by_rank": "each rank scales its int8 by its own largest gradient, although all have to share one scale",
}
MISTAKES = in_cell(_INT8, _SENTENCES, error_feedback_dropped=error_feedback_dropped, scale_by_rank=scale_by_rank)
