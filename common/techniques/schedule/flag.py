"""The flags of the learning rate's schedule."""

import dataclasses

from samestep.common.flags import MAX_STEPS, flag

SCHEDULES = ("constant", "linear", "cosine")


@dataclasses.dataclass(frozen=True)
class ScheduleFlags:
    """The flags that choose how the learning rate rises and decays."""

    learning_rate_schedule: str = flag(
        "constant", "how the learning rate decays after the warm-up; linear and cosine end at zero", choices=SCHEDULES
    )
    warmup_steps: int = flag(
        0, "number of steps over which the learning rate rises linearly to its full value", least=0, most=MAX_STEPS
    )
    decay_steps: int | None = flag(
        None,
        "the step at which linear and cosine decay end, counted from the first step of training (default: --steps)",
        least=1,
        most=MAX_STEPS,
    )

    @property
    def has_schedule(self) -> bool:
        """Returns whether the learning rate differs between steps."""
        return self.warmup_steps > 0 or self.decay_steps is not None
