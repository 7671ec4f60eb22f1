"""What a process, and those that only serve it, put on the wire in a step: counted window by window, then made one number."""

import statistics
from collections.abc import Callable, Mapping

from common.runtime.records import ProcessRecord
from common.runtime.serving import ask, usage

SENT, RECEIVED = "sent_bytes", "received_bytes"
USUAL = 0.02
"""How far the total of a usual window may be from the median's: more is a worker's first call, which brings its graph."""

Usages = Mapping[str, Mapping[str, int] | None]
"""Role -> `serving.usage`; None for a process that does not answer."""
Window = dict[str, tuple[float, float]]
"""Role -> bytes sent and received per step of one window."""


class Traffic:
    """Counts the present process, and, on rank 0, those that serve."""

    def __init__(self, record: ProcessRecord, serving: Mapping[str, int]) -> None:
        """Counts nothing yet.

        Args:
            record: The present process's.
            serving: Role -> rank of every process that only serves; empty everywhere but on rank 0.
        """
        self._record, self._serving = record, serving
        self._windows: list[Window] = []

    def now(self) -> Usages:
        """The counters of all."""
        own = {self._record.role: usage()}
        return own | {role: ask(self._record.run, role) for role in self._serving}

    def count(self, before: Usages, after: Usages, steps: int) -> None:
        """Adds a window; a process that did not answer at both its ends counts as silent."""
        window: Window = {}
        for role, first in before.items():
            last = after[role]
            known = first is not None and last is not None
            sent, received = ((last[name] - first[name]) / steps if known else 0.0 for name in (SENT, RECEIVED))
            window[role] = (sent, received)
        self._windows.append(window)

    def own(self) -> dict[str, float]:
        """Of the present process: the median, since what a peer fetches late, between windows, is missing from the mean."""
        seen = [window[self._record.role] for window in self._windows]
        return _per_step(seen, statistics.median)

    def served(self) -> list[dict[str, object]]:
        """Of those that serve: the mean over the usual windows, since each of them may have had only some of the steps."""
        totals = [sum(sent for sent, _ in window.values()) for window in self._windows]
        middle = statistics.median_low(totals) if totals else 0.0
        usual = [w for w, total in zip(self._windows, totals, strict=True) if abs(total - middle) <= USUAL * middle]
        rows: list[dict[str, object]] = []
        for role, rank in self._serving.items():
            sent = _per_step([window[role] for window in usual], statistics.fmean)
            memory = (ask(self._record.run, role) or {}).get("peak_rss_bytes", 0)
            rows.append({"role": role, "rank": rank, **sent, "peak_rss_bytes": memory, "measures": {}})
        return rows


def _per_step(seen: list[tuple[float, float]], typical: Callable[[list[float]], float]) -> dict[str, float]:
    sent, received = (typical(list(column)) for column in zip(*seen, strict=True)) if seen else (0.0, 0.0)
    return {"sent_bytes_per_step": sent, "received_bytes_per_step": received}
