"""Known mistakes in local steps, as mutants; most of them concern the outer step."""

import dataclasses
from collections.abc import Callable
from functools import partial

import numpy as np

from samestep.common.batch import Batch
from samestep.common.program import Arrays
from samestep.common.reference.mutants import GPT, Context, in_cell
from samestep.common.reference.periods import RankPrograms, copied
from samestep.common.reference.program import TrainingProgram

_CELL = f"{GPT}+outer_momentum=0.9+outer_rate=0.7+local_steps=2"


def _change_outer(momentum: float | None, rate: float, program: TrainingProgram, context: Context) -> bool:
    """Makes the outer step use another rate, and optionally another momentum.

    Args:
        momentum: The momentum; None leaves it unchanged.
        rate: The factor of the rate; 0 stands for the number of ranks.
        program: The program to be made wrong.
        context: Ignored.
    """
    if (together := program.together) is None:
        return False
    right, asked = together.outer, together.techniques
    given = asked.outer_momentum if momentum is None else momentum
    wrong = dataclasses.replace(
        asked, outer_momentum=given, outer_rate=asked.outer_rate * (rate or len(together.ranks))
    )
    together.outer = lambda techniques, shared, kept, ranks: right(wrong, shared, kept, ranks)
    return wrong != asked


def _period_from_here(program: TrainingProgram, context: Context) -> bool:
    """Makes the outer step count the change of the weights from the current step on.

    Args:
        program: The program to be made wrong.
        context: Ignored.
    """
    if (together := program.together) is None:
        return False
    together.shared = copied(program.state().params)
    return together.techniques.keeps_shared and together.techniques.steps_of_period > 1


def _meet(
    wrong: Callable[[RankPrograms, Callable[[], None]], None], program: TrainingProgram, context: Context
) -> bool:
    """Makes a program end a period in another way.

    Args:
        wrong: Ends the period, given the programs of the ranks and the function that does so correctly.
        program: The program to be made wrong.
        context: Ignored.
    """
    if (together := program.together) is None:
        return False
    together.meet = partial(wrong, together, together.meet)
    return True


def _keep_own_weights(together: RankPrograms, right: Callable[[], None]) -> None:
    own = [rank.params for rank in together.ranks]
    right()
    for rank, params in zip(together.ranks, own, strict=True):
        rank.params = params


def _average_state(together: RankPrograms, right: Callable[[], None]) -> None:
    right()
    for arrays in zip(*(_slots(rank) for rank in together.ranks), strict=True):
        mean = sum(arrays) / len(arrays)
        for array in arrays:
            array[...] = mean


def _reset_state(together: RankPrograms, right: Callable[[], None]) -> None:
    right()
    for rank in together.ranks:
        for array in _slots(rank):
            array[...] = 0


def _slots(program: TrainingProgram) -> list[np.ndarray]:
    return [array for arrays in program.slots.values() for array in arrays.values()]


def _end_after_first(program: TrainingProgram, context: Context) -> bool:
    """Makes each period end after its first step, as with a counter that is tested before it is increased.

    Args:
        program: The program to be made wrong.
        context: Ignored.
    """
    if (together := program.together) is None:
        return False
    right = together.ends_period
    together.ends_period = lambda number: right(number - 1)
    return together.techniques.steps_of_period > 1


def _average_gradients(program: TrainingProgram, context: Context) -> bool:
    """Makes every rank follow the mean of all gradients, in every step.

    Args:
        program: The program to be made wrong.
        context: Ignored.
    """
    if (together := program.together) is None:
        return False
    right = [rank.gradients for rank in together.ranks]

    def step(batch: Batch, number: int) -> float:
        count = len(right)
        found = [own(batch.part(place, count)) for place, own in enumerate(right)]
        mean = {name: sum(gradients[name] for _, gradients in found) / count for name in found[0][1]}
        for rank, (loss, _) in zip(together.ranks, found, strict=True):
            rank.gradients = partial(_given, loss, mean)  # pyrefly: ignore[bad-argument-type]
        return take(batch, number)

    take = together.step
    together.step = step
    return True


def _given(loss: float, gradients: Arrays, batch: Batch) -> tuple[float, Arrays]:
    return loss, dict(gradients)


_SENTENCES = {
    "outer_momentum_forgotten": "the outer step has no momentum, although the outer optimizer should have some",
    "outer_step_uphill": "the outer step goes the wrong way: the change of the weights has the wrong sign",
    "changes_summed": "the outer step follows the sum of how far the ranks' weights moved, instead of the mean",
    "period_begin_lost": "the outer step counts the change of the weights from this step on: those that the period "
    "began with were lost",
    "own_weights_kept": "each rank continues from its own weights after the outer step: the new ones never reached it",
    "inner_state_averaged": "the optimizer states of the ranks are averaged at the outer step, although each rank "
    "should keep its own",
    "inner_state_reset": "the optimizer states of the ranks start from zero after the outer step, although each rank "
    "should keep its own",
    "period_ends_early": "the outer step comes after the first step of a period, not after the last: the counter of "
    "steps starts at 0",
    "gradients_averaged_too": "the ranks average their gradients in every step, although each should follow its own",
}
MISTAKES = in_cell(
    _CELL,
    _SENTENCES,
    outer_momentum_forgotten=partial(_change_outer, 0.0, 1.0),
    outer_step_uphill=partial(_change_outer, None, -1.0),
    changes_summed=partial(_change_outer, None, 0.0),
    period_begin_lost=_period_from_here,
    own_weights_kept=partial(_meet, _keep_own_weights),
    inner_state_averaged=partial(_meet, _average_state),
    inner_state_reset=partial(_meet, _reset_state),
    period_ends_early=_end_after_first,
    gradients_averaged_too=_average_gradients,
)
