"""Counts what a process, and those that only serve, use in a step: window by window, then reduced to one number.

It also counts how busy they are in the observed step.
"""

import contextlib
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from samestep.common.runtime.measured import Usage
from samestep.common.runtime.process_file import ProcessFile
from samestep.common.runtime.worker.disturbances import Disturbances
from samestep.common.runtime.worker.usage import Counters, ask, count

TOLERANCE = 0.02
"""How far the total of a typical window may be from the median. A worker's first call sends more, because it carries its
graph."""

Reading = Mapping[str, Counters | None]
"""Role -> its counters; None for a process that does not answer."""
Bytes = tuple[float, ...]
"""The bytes of a step: sent, received, and the parts of both that went to other hosts and came from them."""
Window = dict[str, Bytes | None]
"""Role -> the bytes of one window; None for a process that did not always answer in it."""
_NOTHING: Bytes = (0.0,) * 4


class Traffic:
    """Counts what the current process uses, and on rank 0 what the processes that only serve use."""

    def __init__(
        self,
        file: ProcessFile,
        serving: Mapping[str, int],
        disturbances: Disturbances | None = None,
        alone: bool = False,
    ) -> None:
        """Starts without counts.

        Args:
            file: The file of the present process.
            serving: The rank of every process that only serves, by role; empty except on rank 0.
            disturbances: Watches the windows that count; by default nothing does.
            alone: Whether the run has no other process, and does not call itself over a connection, as torch:rpc does.
        """
        self._file, self._serving, self._alone = file, serving, alone
        self._disturbances = disturbances or Disturbances()
        self._windows: list[Window] = []
        self._before: Counters | None = None
        self._first: Reading = {}
        self._last: Reading = {}
        self._steps = self._counted_steps = 0
        self._counts = False
        self._seconds = 0.0
        self._busy_seconds: dict[str, float] = {}

    def read(self) -> Reading:
        """Reads all counters; a process that is alone reads its connections only before the first window and at the end."""
        own = count(sends=not self._alone)
        return {self._file.role: own} | {role: ask(self._file.directory, role) for role in self._serving}

    def open(self, counts: bool = True) -> None:
        """Starts the next window.

        Args:
            counts: Whether the window counts.
        """
        self._counts, self._steps = counts, 0
        if counts:
            if self._alone and self._before is None:  # what it sent to meet itself is not part of a step
                self._before = count()
            self._windows.append({})
            self._disturbances.start()

    def add(self, before: Reading, after: Reading, steps: int) -> None:
        """Adds a part to the current window.

        Args:
            before: The counters at its start.
            after: The counters at its end.
            steps: The number of steps taken within it.
        """
        if not self._counts:
            return
        self._disturbances.stop()
        self._first, self._last = self._first or before, after
        window, share = self._windows[-1], steps / (self._steps + steps)
        for role, first in before.items():
            new, old = _difference(first, after[role], steps), window.get(role, _NOTHING)
            window[role] = new and old and tuple(n * share + o * (1 - share) for n, o in zip(new, old, strict=True))
        self._steps += steps
        self._counted_steps += steps

    @contextlib.contextmanager
    def observed(self) -> Iterator[None]:
        """Makes the context of the observed step, in which processor time is counted."""
        before, start = self.read(), time.perf_counter()
        yield
        self._seconds = time.perf_counter() - start
        for role, after in self.read().items():
            if (first := before[role]) is not None and after is not None:
                self._busy_seconds[role] = after.cpu_seconds - first.cpu_seconds

    def own(self, threads: int | None) -> Usage:
        """Computes the usage of the current process.

        Bytes per step are the median over windows, because traffic that falls between two windows is counted in neither
        and would bias the mean.

        Args:
            threads: The number of threads of its devices; None if these are not CPU devices.
        """
        seen, whole = [window[self._file.role] for window in self._windows], count()
        if self._before is not None and self._counted_steps:
            seen = [_difference(self._before, whole, self._counted_steps)]
        return self._usage(self._file.role, self._file.rank, seen, statistics.median, whole, threads)

    def _cpu_seconds(self, role: str) -> float:
        """Returns the processor time from the start of the first window that counts to the end of the last."""
        first, last = self._first.get(role), self._last.get(role)
        return last.cpu_seconds - first.cpu_seconds if first and last else 0.0

    def served(self, threads: int | None) -> tuple[Usage, ...]:
        """Computes the usage of the processes that serve.

        Bytes per step are the mean over the typical windows, because each process may have had only some of the steps. A window
        is not typical if a process that answers in others did not answer in it (it is slow to start, or died).

        Args:
            threads: The number of threads of each of them; None if their devices are not CPU devices.
        """
        answers = [len([each for each in window.values() if each]) for window in self._windows]
        heard = [w for w, number in zip(self._windows, answers, strict=True) if number == max(answers)]
        totals = [sum(sent for sent, *_ in filter(None, window.values())) for window in heard]
        middle = statistics.median_low(totals) if totals else 0.0
        typical = [w for w, total in zip(heard, totals, strict=True) if abs(total - middle) <= TOLERANCE * middle]
        return tuple(
            self._usage(
                role,
                rank,
                [window[role] for window in typical],
                statistics.fmean,
                ask(self._file.directory, role),
                threads,
            )
            for role, rank in self._serving.items()
        )

    def _usage(
        self,
        role: str,
        rank: int,
        seen: Sequence[Bytes | None],
        average: Callable[[list[float]], float],
        counters: Counters | None,
        threads: int | None,
    ) -> Usage:
        busy = None if threads is None else self._busy_seconds.get(role)
        columns = zip(*filter(None, seen), strict=True)
        sent, received, *away = [average(list(column)) for column in columns] or _NOTHING
        return Usage(
            role=role,
            rank=rank,
            sent_bytes_per_step=sent,
            received_bytes_per_step=received,
            sent_away_bytes_per_step=away[0],
            received_away_bytes_per_step=away[1],
            peak_rss_bytes=counters.peak_rss_bytes if counters else 0,
            cpu_seconds=self._cpu_seconds(role),
            busy_seconds=busy,
            idle_seconds=None if busy is None else max(0.0, (threads or 0) * self._seconds - busy),
        )


def _difference(before: Counters | None, after: Counters | None, steps: int) -> Bytes | None:
    if before is None or after is None:
        return None
    carried = zip(after[: len(_NOTHING)], before[: len(_NOTHING)], strict=True)
    return tuple((new - old) / steps for new, old in carried)
