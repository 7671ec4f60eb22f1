"""Finds whether the kernel killed a process for lack of memory, from the counters of its control group or the kernel's log.

References:
    docs.kernel.org/admin-guide/cgroup-v2.html (memory.events, memory.max), docs.kernel.org/admin-guide/cgroup-v1/memory.html
    (memory.oom_control, memory.limit_in_bytes).
"""

import os
import re
from pathlib import Path

_CGROUPS = Path("/sys/fs/cgroup")
_KERNEL_LOG = Path("/dev/kmsg")
_MEBIBYTE = 2**20


class MemoryKills:
    """Finds kills for lack of memory among the processes that this one starts."""

    def __init__(self, cgroup: Path | None = None, kernel_log: Path = _KERNEL_LOG) -> None:
        """Counts the kills so far, which are not reported.

        Args:
            cgroup: The folder of the control group; by default that of this process.
            kernel_log: Where the kernel reports each kill.
        """
        self._cgroup = cgroup or _own_cgroup()
        self._kernel_log = kernel_log
        self._counted, self._known = self._count(), self._reported()

    def explain(self, pid: int) -> str:
        """Says that a process was killed for lack of memory, and at which size; "" if it was not.

        Args:
            pid: The id of a process that SIGKILL ended.
        """
        before, self._counted = self._counted, self._count()
        if self._counted > before:
            limit = self._number("memory.max") or self._number("memory.limit_in_bytes")
            return f"for lack of memory at {limit // _MEBIBYTE} MiB" if limit else "for lack of memory"
        since = "\n".join(self._reported() - self._known)  # an earlier process may have had the same id
        found = re.search(rf"Killed process {pid} \(.*anon-rss:(\d+)kB", since)
        return f"for lack of memory at {int(found[1]) // 1024} MiB" if found else ""

    def _count(self) -> int:
        return self._number("memory.events", "oom_kill ") + self._number("memory.oom_control", "oom_kill ")

    def _number(self, name: str, label: str = "") -> int:
        """Reads a number from a file of the control group; 0 if there is none."""
        try:
            found = re.search(rf"^{label}(\d+)$", (self._cgroup / name).read_text(), re.MULTILINE)
        except OSError:
            return 0
        return int(found[1]) if found else 0

    def _reported(self) -> set[str]:
        """Returns the kernel's messages, with their times, that this user may read; each read returns one, or fails."""
        messages = set()
        try:
            descriptor = os.open(self._kernel_log, os.O_RDONLY | os.O_NONBLOCK)
        except OSError:
            return messages
        try:
            while message := os.read(descriptor, 8192):
                messages.add(message.decode(errors="replace"))
        except OSError:
            pass
        finally:
            os.close(descriptor)
        return messages


def _own_cgroup() -> Path:
    """Returns the folder of this process's control group with a memory controller, as far as it is visible from here."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return _CGROUPS
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers in ("", "memory"):
            folder = _CGROUPS / controllers
            own = folder / path.lstrip("/")
            return own if own.exists() else folder  # in a container, whose own group is the root it sees
    return _CGROUPS
