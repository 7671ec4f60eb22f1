"""Counts the events of a step: passes through loaders, steps of schedules, and trained calls in evaluation mode."""

import weakref
from collections.abc import Callable

from samestep.torch_impl.recording.step.loaders import LoaderPasses


class Counts:
    """The counts of each step."""

    def __init__(self, is_step_over: Callable[[], bool]) -> None:
        """Starts to count.

        Args:
            is_step_over: Returns whether a step is over but not yet written.
        """
        self.passes = LoaderPasses(is_step_over)
        self._schedules: dict[int, tuple[weakref.ref[object], int]] = {}
        self.evaluated = 0  # trained calls in evaluation mode

    def forget_schedules(self) -> None:
        """Discards the steps of schedules so far, because schedules take a step when they are created."""
        self._schedules = {key: (made, 0) for key, (made, _) in self._schedules.items()}

    def add_schedule(self, schedule: object) -> None:
        """Counts a step of a learning-rate schedule.

        Args:
            schedule: The schedule.
        """
        made, count = self._schedules.get(id(schedule), (None, 0))
        if made is None or made() is not schedule:  # a deleted schedule may have had this id
            made, count = weakref.ref(schedule), 0
        self._schedules[id(schedule)] = made, count + 1

    def end_step(self) -> dict[str, int]:
        """Returns the counts for `RecordedStep.counts`, and starts to count for the next step."""
        found = self.passes.end_step()
        if self.evaluated:
            found["evaluated_calls"], self.evaluated = self.evaluated, 0
        if self._schedules:
            found["schedule_steps"] = max(count for _, count in self._schedules.values())
            self.forget_schedules()
        return found
