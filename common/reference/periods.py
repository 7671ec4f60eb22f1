"""Local steps in NumPy: a program for each rank, and the outer step that all ranks take together."""

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from samestep.common.batch import Batch
from samestep.common.mesh import Mesh
from samestep.common.program import OUTER, SHARED, Arrays, TrainState
from samestep.common.reference.step import transform
from samestep.common.strategy import Run
from samestep.common.techniques.local_steps.ranks import averaged, kept, of_rank, pack
from samestep.common.techniques.technique import Periods
from samestep.common.techniques.used import periods_of, without

if TYPE_CHECKING:
    from samestep.common.reference.program import TrainingProgram

    Make = Callable[[Run, TrainState | None], TrainingProgram]


class RankPrograms:
    """The programs of all ranks.

    Attributes:
        ranks: The programs, in order.
        shared: The weights with which the current period began.
        momentum: The running sum of the outer steps.
        outer: Computes the outer step, like `Periods.statement`.
        techniques: The techniques of the run.
    """

    def __init__(self, run: Run, periods: Periods, make: "Make", start: TrainState | None) -> None:
        own = dataclasses.replace(
            run,
            mesh=Mesh((("data", 1),)),
            batch_size=run.batch_size // run.num_devices,
            techniques=without("periods", run.techniques),
        )
        self.ranks = [make(own, start and _own(start, place)) for place in range(run.num_devices)]
        self.techniques, self.outer = run.techniques, periods.statement
        self._begin(start or TrainState(0, self.ranks[0].params, {}))

    def _begin(self, state: TrainState) -> None:
        self.shared = copied(state.params | kept(state, SHARED))
        self.momentum = {n: np.zeros_like(v) for n, v in self.shared.items()} | copied(kept(state, OUTER))

    def step(self, batch: Batch, number: int) -> float:
        """Takes a step of each rank on its shard, and the outer step of all ranks if a period ends with it.

        Args:
            batch: The global batch.
            number: The number of the step, counted from 1.

        Returns:
            The mean of the ranks' losses.
        """
        for place, rank in enumerate(self.ranks):
            rank.step(batch.part(place, len(self.ranks)))
        if self.ends_period(number):
            self.meet()
        return float(np.mean([rank.losses() for rank in self.ranks]))

    def ends_period(self, number: int) -> bool:
        """Returns whether a period ends with a step; steps are counted from 1."""
        return number % self.techniques.steps_of_period == 0

    def meet(self) -> None:
        """Takes the outer step, and gives every rank the resulting weights."""
        weights = [rank.params for rank in self.ranks]
        self.shared, self.momentum = self.outer(self.techniques, self.shared, self.momentum, weights)
        for rank in self.ranks:
            rank.params = copied(self.shared)

    def gradients(self, batch: Batch) -> tuple[float, Arrays]:
        """Computes the means, over the ranks, of their losses and of their gradients on a batch."""
        found = [rank.gradients(batch.part(place, len(self.ranks))) for place, rank in enumerate(self.ranks)]
        followed = [transform(gradients, self.techniques) for _, gradients in found]
        mean = {name: sum(each[name] for each in followed) / len(followed) for name in followed[0]}
        return float(np.mean([loss for loss, _ in found])), mean  # pyrefly: ignore[bad-return]

    def state(self) -> TrainState:
        """Returns the mean state of the ranks, with the local state of each rank."""
        states = [rank.state() for rank in self.ranks]
        local = pack(states, copied(self.shared), copied(self.momentum))
        return averaged(dataclasses.replace(states[0], local=local))

    def restore(self, state: TrainState) -> None:
        """Restores each rank from its local state, or from the means if it has none."""
        for place, rank in enumerate(self.ranks):
            rank.restore(_own(state, place))
        self._begin(state)


def rank_programs(run: Run, make: "Make", start: TrainState | None) -> RankPrograms | None:
    """Makes the programs of the ranks of a run with local steps; returns None for any other run.

    Args:
        run: The run.
        make: Makes the program of a rank.
        start: The state to continue from, as in `TrainingProgram`.
    """
    periods = periods_of(run.techniques)
    return None if periods is None else RankPrograms(run, periods, make, start)


def _own(state: TrainState, place: int) -> TrainState:
    """Returns the state from which a rank continues."""
    return dataclasses.replace(of_rank(state, place), local=())


def copied(arrays: Arrays) -> Arrays:
    """Copies arrays, into float64."""
    return {name: np.array(value, np.float64) for name, value in arrays.items()}
