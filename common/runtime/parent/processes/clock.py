"""A clock that stands still while nobody could do anything, as when a lid is closed."""

import time
from collections.abc import Callable

SUSPENDED_SECONDS = 2.0
"""Whoever looks that much later than the last time was suspended meanwhile, and so, most likely, was the whole machine."""


class AwakeClock:
    """Seconds in which this process ran. The time between two looks that are far apart does not count."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Starts the clock.

        Args:
            clock: A clock in seconds that never stands still.
        """
        self._clock = clock
        self._looked = clock()
        self._suspended = 0.0

    def now(self) -> float:
        """Looks at the clock, which has to be done often."""
        time_now = self._clock()
        if time_now - self._looked > SUSPENDED_SECONDS:
            self._suspended += time_now - self._looked
        self._looked = time_now
        return time_now - self._suspended
