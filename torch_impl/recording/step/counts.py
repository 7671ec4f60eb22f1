"""What is counted in a step beside its numbers: steps of schedules, calls in evaluation mode."""

import weakref
from collections.abc import Callable

from samestep.torch_impl.recording.step.loaders import LoaderPasses


class Counts:
    """The counts of one step after the other."""

    def __init__(self, is_step_over: Callable[[], bool]) -> None:
        """Counts from now on.

        Args:
            is_step_over: Says whether a step is over but for its being written.
        """
        self.passes = LoaderPasses(is_step_over)
        self._schedules: dict[int, tuple[weakref.ref[object], int]] = {}
        self.evaluated = 0  # calls in evaluation mode that were trained on

    def forget_schedules(self) -> None:
        """Leaves out what schedules did until now: they take a step when they are made."""
        self._schedules = {key: (made, 0) for key, (made, _) in self._schedules.items()}

    def add_schedule(self, schedule: object) -> None:
        """Counts a step of a learning-rate schedule.

        Args:
            schedule: The schedule.
        """
        made, count = self._schedules.get(id(schedule), (None, 0))
        if made is None or made() is not schedule:  # one that the script has deleted may have had the id
            made, count = weakref.ref(schedule), 0
        self._schedules[id(schedule)] = made, count + 1

    def end_step(self) -> dict[str, int]:
        """Returns the counts, as `RecordedStep.counts` has them, and begins to count for the next step."""
        found = self.passes.end_step()
        if self.evaluated:
            found["evaluated_calls"], self.evaluated = self.evaluated, 0
        if self._schedules:
            found["schedule_steps"] = max(count for _, count in self._schedules.values())
            self.forget_schedules()
        return found
