"""Handles tokens between two experts: rounding decides which one they take, as it decides a ReLU at its kink.

If two experts are nearly equally likely, a router may choose either, and both steps are right. So a step that differs from the
oracle's is also compared with oracle steps in which such tokens take their other expert, one of them or several.
"""

import itertools

from samestep.common.batch import Batch
from samestep.common.judging.roundoff import EXPLAINED
from samestep.common.program import TrainState
from samestep.common.reference.distance import StepOutcome, distance, take
from samestep.common.reference.program import TrainingProgram
from samestep.common.reference.step_context import Ties
from samestep.common.request import UNIT_ROUNDOFF
from samestep.common.strategy import Run

MOST_TURNED = 6
"""The largest number of such tokens in a step for which all subsets are tried: 64 steps."""


def ties_of(run: Run, turned: tuple[tuple[int, int], ...] = ()) -> Ties:
    """Makes the object that notes the tokens of a step whose expert rounding may change.

    Args:
        run: The run.
        turned: The tokens that take their other expert.
    """
    return Ties(EXPLAINED * UNIT_ROUNDOFF[run.dtype], frozenset(turned))


def nearest_way(run: Run, before: TrainState, batch: Batch, seen: StepOutcome) -> float:
    """Returns the distance, as in `distance`, of a step from the nearest step that rounding may make of the oracle's.

    Args:
        run: The run.
        before: The state that the step starts from.
        batch: The global batch.
        seen: The step of the run.
    """

    def apart(ties: Ties) -> float:
        program = TrainingProgram(run, before)
        for each in program.programs:
            each.context.ties = ties
        return distance(run, before, seen, take(program, batch))

    plain = ties_of(run)
    nearest, found = apart(plain), plain.found
    sizes = range(1, len(found) + 1) if len(found) <= MOST_TURNED else ()
    for turned in itertools.chain.from_iterable(itertools.combinations(found, size) for size in sizes):
        if nearest <= 1:
            break
        nearest = min(nearest, apart(ties_of(run, turned)))
    return nearest
