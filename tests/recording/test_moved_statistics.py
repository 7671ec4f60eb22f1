"""Statistics that a call between two steps moves are the same after the next step, by more than a guess of rounding."""

from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from samestep.common.judging.recorded.differences import RoundingScale
from samestep.common.judging.recorded.weights import MovedStatistics
from samestep.common.steps.projections import PROJECTIONS
from samestep.common.steps.record import RecordedTensor
from samestep.common.steps.recorded_run import Sums


def sums(number: float) -> Sums:
    return Sums(np.full((1, PROJECTIONS), number), np.array([number**2]), np.array([1], np.uint64))


@pytest.mark.parametrize(
    ("now", "later", "expected"),
    [
        ((1.0, 1.1), (1.2, 1.2 + 1e-6), "same"),
        ((1.0, 1.1), (1.2, 1.2 + 6e-3), ""),
        ((1.0, 1.1), (1.1 + 1e-6, 1.2), "ahead"),
        ((1.1, 1.0), (1.2, 1.1 + 1e-6), "ahead"),
        ((1.0, 1.1), (1.1 + 6e-3, 1.2), ""),
    ],
)
def test_statistics_that_are_still_apart_after_the_next_step_are_not_the_same(
    now: tuple[float, float], later: tuple[float, float], expected: str
) -> None:
    """As after other examples, where a momentum of 0.1 leaves nine tenths of what they made: a loose guess covers it."""
    scale = cast("RoundingScale", SimpleNamespace(same=10.0, rounding=np.array([1e-3])))
    statistics = MovedStatistics([cast("RecordedTensor", SimpleNamespace(role="buffer"))])
    asides, differs = dict[str, None](), np.array([True])
    ours, theirs = ((sums(one), sums(other)) for one, other in (now, later))
    found = statistics.found((ours, theirs), np.array([0.02]), differs, scale, asides)
    assert [bool(found[0]), bool(asides)] == [bool(expected)] * 2
    assert bool(statistics.known(differs)[0]) == (expected == "same")  # nothing else is known after the last step
