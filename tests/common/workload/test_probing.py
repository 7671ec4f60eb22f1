"""What a forward pass depends on is found in as few passes as tell it."""

from collections.abc import Iterator

import numpy as np

from samestep.common.workload.models.findings import Habits
from samestep.common.workload.models.probing import EXAMPLES, How, ProbedPass, SeenLayer, find_habits


class Counted:
    """A model that returns its examples, and adds `drift` more with each call."""

    initial: dict[str, np.ndarray] = {}  # noqa: RUF012
    normalizing = ()
    reduction = "mean"
    losses_only = False

    def __init__(self, drift: float) -> None:
        self.drift, self.calls = drift, 0

    def take(self, how: How) -> ProbedPass:
        return ProbedPass(self._call(how), {}, again=self._call(how) if how.is_twice else None)

    def layers(self, how: How) -> Iterator[SeenLayer]:
        yield from ()

    def _call(self, how: How) -> np.ndarray:
        self.calls += 1
        return np.arange(EXAMPLES, dtype=np.float64)[slice(*how.rows)] + self.calls * self.drift


def test_only_the_first_two_passes_are_taken_twice() -> None:
    """One pass with draws that run and one without tell whether it is steady; two with another seed, and three for mixing."""
    model = Counted(drift=0.0)
    assert find_habits(model) == Habits()
    assert model.calls == 2 * 2 + 2 + 3


def test_a_second_call_that_gives_something_else_is_not_steady() -> None:
    assert find_habits(Counted(drift=1.0)) == Habits(is_steady=False)
