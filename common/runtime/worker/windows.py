"""The counts of the training loop: seconds and losses by window, and how long each step took."""

import array
import dataclasses
import itertools
from collections.abc import Sequence

from samestep.common.judging.percentiles import count_seconds


@dataclasses.dataclass
class Windows:
    """The counts of the loop by window. The first window is the first step alone; its bytes count if it is the only one."""

    steps: list[int] = dataclasses.field(default_factory=list)
    seconds: list[float] = dataclasses.field(default_factory=list)
    losses: "array.array[float]" = dataclasses.field(default_factory=lambda: array.array("d"))
    step_times: dict[int, int] = dataclasses.field(default_factory=dict)
    parts_ahead: int = 0

    def open(self) -> None:
        """Starts the next window."""
        self.steps.append(0)
        self.seconds.append(0.0)

    def add(self, seconds: float, steps: int, losses: Sequence[float]) -> None:
        """Adds a part to the current window.

        Args:
            seconds: The time it took.
            steps: The number of steps in it.
            losses: The losses of these steps, on the processes that have them.
        """
        self.steps[-1] += steps
        self.seconds[-1] += seconds
        self.losses.extend(losses)

    def time_steps(self, ticks: Sequence[float]) -> None:
        """Counts the seconds of each step of a part, from the return of the call before it to the return of its own.

        A call may return before its step has ended, as on a GPU. Then more than one step is still running at the part's end. If
        most parts are like this, the returns say nothing about single steps, and none are counted.

        Args:
            ticks: The moments when the part began, when the call of each step returned, and when all were done.
        """
        began, *returns, done = ticks
        self.parts_ahead += 1 if done - returns[-1] > (done - began) / len(returns) else -1
        count_seconds(self.step_times, (end - start for start, end in itertools.pairwise(ticks[:-1])))

    @property
    def awaited_step_times(self) -> dict[int, int]:
        """Returns the counts of the seconds of steps; empty if their calls do not wait for them."""
        return {} if self.parts_ahead > 0 else self.step_times
