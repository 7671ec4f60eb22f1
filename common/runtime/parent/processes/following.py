"""Follows a run while it trains: the end of its step log, and when its processes last showed progress."""

import contextlib
import dataclasses
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from samestep.common.errors import WorkerFailed
from samestep.common.files.reading import Unreadable, open_plain, parse_json, read_bytes
from samestep.common.runtime.process_file import Life, read_life
from samestep.common.steps.log import METRICS, METRICS_BYTES

Progress = Callable[[int, list[float], float], None]
"""A function that is called at every window's end with the step reached, the window's losses and its seconds. While held-out
examples are evaluated, it is called with their number so far, without losses or seconds."""

SUSPENDED_SECONDS = 2.0
"""If two checks are further apart, the process was suspended between them, most likely together with the whole machine."""


class StepTail:
    """Shows the windows that were added to a step log since the last call.

    Attributes:
        step: The step at the end of the last window that was read; 0 before the first.
    """

    def __init__(self, directory: Path) -> None:
        """Starts at the present end of the log.

        Args:
            directory: The run directory.
        """
        self._directory, self._read, self.step = directory, 0, 0
        with contextlib.suppress(Unreadable):  # windows of earlier attempts were shown when they were logged
            self._read = read_bytes(directory / METRICS, METRICS_BYTES).rfind(b"\n") + 1

    def show(self, progress: Progress | None, step: int) -> None:
        """Shows the windows that were added.

        Args:
            progress: The function to call with each.
            step: The last step that the run is known to have reached, for messages.

        Raises:
            WorkerFailed: The log was removed or damaged.
        """
        while added := self._added(step):  # again, since the log may grow meanwhile
            for window in added:  # outside the `try`: an error of this function does not mean a damaged log
                self.step = window[0]
                if progress is not None:
                    progress(*window)

    def _added(self, step: int) -> list[tuple[int, list[float], float]]:
        """Reads the windows that were added; the arguments and errors are those of `show`."""
        path, added = self._directory / METRICS, []
        try:
            if not path.exists():
                if self._read and self._directory.exists():  # else it is not there yet, or the run is gone
                    raise WorkerFailed(f"{path} was removed; the run was at step {step}")
                return []
            with open_plain(path) as file:
                file.seek(self._read)
                while (line := file.readline(METRICS_BYTES)).endswith(b"\n"):
                    self._read = file.tell()
                    values = parse_json(line)
                    added.append((values["step"], values["losses"], values["seconds"]))  # pyrefly: ignore
        except (Unreadable, ValueError, KeyError, TypeError):
            raise WorkerFailed(f"{path} is damaged; the run was at step {step}") from None
        return added


class AwakeClock:
    """A clock of the seconds in which this process ran. The time between two readings that are far apart does not count."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Starts the clock.

        Args:
            clock: A clock in seconds that never stands still.
        """
        self._clock = clock
        self._looked = clock()
        self._suspended = 0.0

    def now(self) -> float:
        """Returns the seconds so far. It has to be called often."""
        time_now = self._clock()
        if time_now - self._looked > SUSPENDED_SECONDS:
            self._suspended += time_now - self._looked
        self._looked = time_now
        return time_now - self._suspended


@dataclasses.dataclass(frozen=True)
class Heartbeat:
    """The last progress that one process showed, and for how long it has shown nothing new."""

    life: Life
    silent_seconds: float


class Heartbeats:
    """The heartbeats of a run's processes. The time between two calls that are far apart does not count as silence."""

    def __init__(self, directory: Path, clock: Callable[[], float] = time.monotonic) -> None:
        """Starts the clock.

        Args:
            directory: The run directory.
            clock: A clock in seconds.
        """
        self._directory, self._clock = directory, AwakeClock(clock)
        self._seen: dict[int, tuple[float, float]] = {}
        self.step = 0

    def take(self, roles: Mapping[int, str]) -> dict[int, Heartbeat]:
        """Checks every process, and sets `step` to the furthest step of any of them.

        Args:
            roles: Worker number -> role.
        """
        now = self._clock.now()
        heartbeats = {}
        for worker, role in roles.items():
            life = read_life(self._directory, role)
            if self._seen.get(worker, (None, 0))[0] != life.seen:
                self._seen[worker] = life.seen, now
            heartbeats[worker] = Heartbeat(life, now - self._seen[worker][1])
            self.step = max(self.step, life.step)
        return heartbeats
