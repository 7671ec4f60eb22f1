"""Parameters that only one of two runs trains, such as a copy of its network that should be frozen or detached."""

import numpy as np

from samestep.common.judging.recorded.inputs import Finding
from samestep.common.judging.recorded.past import Past
from samestep.common.judging.recorded.verdict import FirstDifference, layer_of
from samestep.common.judging.recorded.walk import Walk
from samestep.common.mistakes.parts import said_gradients
from samestep.common.steps.recorded_run import RunStep


def find_alone(walk: Walk, one: RunStep, other: RunStep, past: tuple[Past, Past]) -> Finding | None:
    """Finds parameters that have gradients in one run and do not exist in the other; returns None if both runs have some.

    Args:
        walk: The walk over both runs.
        one: A's step.
        other: B's.
        past: The past of A and that of B.
    """
    sides = [walk.trained_alone(step, side) for side, step in enumerate((one, other))]
    if bool(sides[0]) == bool(sides[1]):
        return None
    side = int(bool(sides[1]))
    names, step = [*sides[side]], (one, other)[side]
    words = f"{said_gradients(names)} in {'AB'[side]} alone"
    before, after = past[side].last.get("weight"), (step.sums or {}).get("weight")
    if before is not None and after is not None:
        places = [*sides[side].values()]
        still = np.array_equal(before.bits[places], after.bits[places])
        words += ", and no update moves them" if still else ""
    name = names[-1]
    return Finding(FirstDifference(one.number, "gradient", layer_of(name), (), words), is_of_one=True)
