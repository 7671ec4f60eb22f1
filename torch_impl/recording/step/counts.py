"""What is counted in a step beside its numbers: steps of schedules, calls in evaluation mode."""

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
        self._schedules: dict[int, int] = {}
        self._evaluated = 0

    def begin_step(self) -> None:
        """Begins to count for the next step."""
        if self._schedules:
            self.forget_schedules()
        self._evaluated = 0
        self.passes.begin_step()

    def forget_schedules(self) -> None:
        """Leaves out what schedules did until now: they take a step when they are made."""
        self._schedules = dict.fromkeys(self._schedules, 0)

    def add_schedule(self, schedule: object) -> None:
        """Counts a step of a learning-rate schedule.

        Args:
            schedule: The schedule.
        """
        self._schedules[id(schedule)] = self._schedules.get(id(schedule), 0) + 1

    def add_evaluated(self) -> None:
        """Counts a call in evaluation mode that was trained on."""
        self._evaluated += 1

    def drop_evaluated(self, is_over: bool) -> bool:
        """Forgets the calls in evaluation mode that were trained on, if there are any, and the step goes on.

        Args:
            is_over: Whether the step is over but for its being written.

        Returns:
            Whether there were any.
        """
        if is_over or not self._evaluated:
            return False
        self._evaluated = 0
        return True

    def values(self) -> dict[str, int]:
        """Returns the counts, as `RecordedStep.counts` has them."""
        found = self.passes.values() | ({"evaluated_calls": self._evaluated} if self._evaluated else {})
        if self._schedules:
            found["schedule_steps"] = max(self._schedules.values())
        return found
