"""When the processes of a run last showed progress, on a clock that stands still while nobody could."""

import dataclasses
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from samestep.common.runtime.process_file import Life, read_life

SUSPENDED_SECONDS = 2.0
"""Whoever looks that much later than the last time was suspended meanwhile, and so, most likely, was the whole machine."""


@dataclasses.dataclass(frozen=True)
class Pulse:
    """What one process showed last, and for how long it has shown nothing new."""

    life: Life
    silent_seconds: float


class Pulses:
    """The pulses of a run's processes. The time between two looks that are far apart does not count as silence."""

    def __init__(self, directory: Path, clock: Callable[[], float] = time.monotonic) -> None:
        """Starts the clock.

        Args:
            directory: The run directory.
            clock: Seconds.
        """
        self._directory, self._clock = directory, clock
        self._looked = clock()
        self._suspended = 0.0
        self._seen: dict[int, tuple[float, float]] = {}
        self.step = 0

    def take(self, roles: Mapping[int, str]) -> dict[int, Pulse]:
        """Looks at every process; `step` is then the furthest that any has been seen at.

        Args:
            roles: The role of each.
        """
        now = self._now()
        pulses = {}
        for worker, role in roles.items():
            life = read_life(self._directory, role)
            if self._seen.get(worker, (None, 0))[0] != life.seen:
                self._seen[worker] = life.seen, now
            pulses[worker] = Pulse(life, now - self._seen[worker][1])
            self.step = max(self.step, life.step)
        return pulses

    def _now(self) -> float:
        time_now = self._clock()
        if time_now - self._looked > SUSPENDED_SECONDS:
            self._suspended += time_now - self._looked
        self._looked = time_now
        return time_now - self._suspended
