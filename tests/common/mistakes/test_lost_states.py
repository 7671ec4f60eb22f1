"""An optimizer that has lost its moments is named by its first update, whichever it is, and one that has not is not."""

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest

from samestep.common.mistakes.evidence import Evidence, Side
from samestep.common.mistakes.seen_tensor import SeenTensor
from samestep.common.mistakes.table import causes
from tests.recording.projecting import project

ADAM = {"betas.0": 0.9, "betas.1": 0.999, "eps": 1e-7}
RHO = {"rho": 0.95, "eps": 1e-7}
SIDE = Side(1, 1, 1, 1.0, (1.0,), None, {}, (), (), False, ())
SHAPE, LAST = (2, 4), 3


def adadelta(gradients: list[np.ndarray]) -> np.ndarray:
    """The last update, at a learning rate of 1."""
    squares, updates, move = np.zeros(SHAPE), np.zeros(SHAPE), np.zeros(SHAPE)
    for each in gradients:
        squares = 0.95 * squares + 0.05 * each**2
        move = np.sqrt((updates + 1e-7) / (squares + 1e-7)) * each
        updates = 0.95 * updates + 0.05 * move**2
    return -move


def rmsprop(gradients: list[np.ndarray]) -> np.ndarray:
    """As above, as Keras has it."""
    squares = np.zeros(SHAPE)
    for each in gradients:
        squares = 0.95 * squares + 0.05 * each**2
    return -gradients[-1] / np.sqrt(squares + 1e-7)


def nadam(gradients: list[np.ndarray]) -> np.ndarray:
    """As above, as Keras has it."""
    first, second, product, move = np.zeros(SHAPE), np.zeros(SHAPE), 1.0, np.zeros(SHAPE)
    for number, each in enumerate(gradients, 1):
        now, then = (0.9 * (1 - 0.5 * 0.96**k) for k in (number, number + 1))
        product *= now
        first, second = 0.9 * first + 0.1 * each, 0.999 * second + 0.001 * each**2
        mean = then * first / (1 - product * then) + (1 - now) * each / (1 - product)
        move = mean / (np.sqrt(second / (1 - 0.999**number)) + 1e-7)
    return -move


def radam(gradients: list[np.ndarray]) -> np.ndarray:
    """As above, for the first five steps, in which it does not divide by the second moments."""
    first = np.zeros(SHAPE)
    for each in gradients:
        first = 0.9 * first + 0.1 * each
    return -first / (1 - 0.9 ** len(gradients))


@pytest.mark.parametrize("is_lost", [True, False])
@pytest.mark.parametrize(
    ("move", "rate", "options"),
    [(adadelta, 1.0, RHO), (rmsprop, 0.01, RHO), (nadam, 0.01, ADAM), (radam, 0.01, ADAM)],
)
def test_the_first_update_of_an_optimizer_shows_that_it_has_lost_its_state(
    move: Callable[[list[np.ndarray]], np.ndarray], rate: float, options: dict[str, float], is_lost: bool
) -> None:
    """Else one of the earlier gradients was another one."""
    drawn = np.random.default_rng(0)
    gradients, moves = [], []
    for name in "uvw":
        given = [*drawn.normal(scale=0.05, size=(LAST, *SHAPE))]
        one, last, before = project(rate * move(given)), project(given[-1]), project(given[-2])
        other = project(rate * move(given[-1:] if is_lost else [given[0] + 0.05, *given[1:]]))
        own = name, "kernel", "parameter", 8
        moves.append(SeenTensor(*own, one, other, 1e-7, 10.0, shape=SHAPE))
        gradients.append(SeenTensor(*own, last, last, 1e-6, 10.0, earlier=before, shape=SHAPE))
    side = dataclasses.replace(SIDE, scalars={"lr": rate} | options)
    found = causes(Evidence("update", LAST - 1, side, side, gradients, moves))
    assert [each.name for each in found] == ["optimizer_state_lost"] * is_lost
