"""Statistics that a call between two steps moves are the same after the next step, by more than a guess of rounding."""

from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from samestep.common.judging.recorded.walk import Walk
from samestep.common.steps.projections import PROJECTIONS
from samestep.common.steps.recorded_run import RunStep, Sums


def sums(number: float) -> Sums:
    return Sums(np.full((1, PROJECTIONS), number), np.array([number**2]), np.array([1], np.uint64))


@pytest.mark.parametrize(("later", "expected"), [(1e-6, True), (6e-3, False)])
def test_statistics_that_are_still_apart_after_the_next_step_are_not_the_same(later: float, expected: bool) -> None:
    """As after other examples, where a momentum of 0.1 leaves nine tenths of what they made: a loose guess covers it."""
    scale = SimpleNamespace(same=10.0, rounding=np.array([1e-3]))
    walk = SimpleNamespace(
        pairing=SimpleNamespace(tensors=[SimpleNamespace(role="buffer")], of=lambda each, side: each),
        further=[RunStep(1, sums={"weight": sums(1.0)}), RunStep(1, sums={"weight": sums(1.0 + later)})],
        yardstick=SimpleNamespace(of=lambda *_: scale),
        asides={},
    )
    found = Walk._moved_earlier(cast("Walk", walk), np.array([0.02]), np.array([True]))
    assert [bool(found[0]), bool(walk.asides)] == [expected, expected]
