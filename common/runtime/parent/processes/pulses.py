"""When the processes of a run last showed progress, on a clock that stands still while nobody could."""

import dataclasses
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from samestep.common.runtime.parent.processes.clock import AwakeClock
from samestep.common.runtime.process_file import Life, read_life


@dataclasses.dataclass(frozen=True)
class Pulse:
    """The last progress that one process showed, and for how long it has shown nothing new."""

    life: Life
    silent_seconds: float


class Pulses:
    """The pulses of a run's processes. The time between two looks that are far apart does not count as silence."""

    def __init__(self, directory: Path, clock: Callable[[], float] = time.monotonic) -> None:
        """Starts the clock.

        Args:
            directory: The run directory.
            clock: A clock in seconds.
        """
        self._directory, self._clock = directory, AwakeClock(clock)
        self._seen: dict[int, tuple[float, float]] = {}
        self.step = 0

    def take(self, roles: Mapping[int, str]) -> dict[int, Pulse]:
        """Looks at every process; `step` is then the furthest that any has been seen at.

        Args:
            roles: The roles of the processes.
        """
        now = self._clock.now()
        pulses = {}
        for worker, role in roles.items():
            life = read_life(self._directory, role)
            if self._seen.get(worker, (None, 0))[0] != life.seen:
                self._seen[worker] = life.seen, now
            pulses[worker] = Pulse(life, now - self._seen[worker][1])
            self.step = max(self.step, life.step)
        return pulses
