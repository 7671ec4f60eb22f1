"""Watches for what disturbs the timed windows of a run: other processes on its cores, and compilation while the clock runs."""

import importlib
import operator
import os
from collections.abc import Callable, Collection
from pathlib import Path
from typing import NamedTuple

from samestep.common.request import FRAMEWORKS
from samestep.common.runtime.measured import Watched
from samestep.common.runtime.process_file import ProcessFile
from samestep.common.runtime.topology import LAUNCHED_AT
from samestep.common.strategy import Run

_ACCOUNTS = Path("/proc/stat")


class CoreSeconds(NamedTuple):
    """The time that some cores have spent since the machine started, in seconds, added up over the cores.

    Attributes:
        busy: The time spent in processes. Interrupts are left out, because most kernels attribute them to no process.
        stolen: The time that other virtual machines took while a process of this one was ready to run.
        passed: All the time that passed, idle time included.
    """

    busy: float
    stolen: float
    passed: float


_NOTHING = CoreSeconds(0.0, 0.0, 0.0)


def read_cores(numbers: Collection[int], accounts: Path = _ACCOUNTS) -> CoreSeconds | None:
    """Reads the kernel's accounts of some cores; None if it keeps none.

    Args:
        numbers: The numbers of the cores.
        accounts: The kernel's file with these accounts.

    References:
        proc_stat(5): user, nice, system, idle, iowait, irq, softirq, steal, in ticks; guests are part of user and nice.
    """
    tick = 1 / os.sysconf("SC_CLK_TCK")
    wanted = {f"cpu{number}" for number in numbers}
    try:
        lines = [line.split() for line in accounts.read_text().splitlines() if line.startswith("cpu")]
        counts = [[int(count) for count in line[1:9]] for line in lines if line[0] in wanted]
        whole = [sum(column) * tick for column in zip(*counts, strict=True)]
        user, nice, system, *_, stolen = whole
    except (OSError, ValueError):
        return None
    return CoreSeconds(user + nice + system, stolen, sum(whole))


class Disturbances:
    """Watches the timed windows of the current process, from the start of the first to the end of the last."""

    def __init__(self, compilations: Callable[[], int] = lambda: 0, watches_cores: bool = False) -> None:
        """Prepares the watch, which `start` starts.

        Args:
            compilations: Returns how many functions the process has compiled or traced so far.
            watches_cores: Whether to watch the cores to which the process is bound. One process of a run is enough, and
                only if all of them are on this machine.
        """
        self._compilations = compilations
        self._cores = os.sched_getaffinity(0) if watches_cores else ()
        self._compiled_before: int | None = None
        self._before: CoreSeconds | None = None
        self.watched = Watched()

    def start(self) -> None:
        """Starts at the first timed window; later calls do nothing."""
        if self._compiled_before is None:
            self._compiled_before = self._compilations()
            self._before = read_cores(self._cores) if self._cores else None

    def stop(self) -> None:
        """Sets `watched` to what happened between `start` and now."""
        before, after = self._before, read_cores(self._cores) if self._before else None
        spent = CoreSeconds(*map(operator.sub, after, before)) if before and after else _NOTHING
        self.watched = Watched(
            compilations=self._compilations() - (self._compiled_before or 0),
            core_seconds=spent.passed,
            busy_core_seconds=spent.busy,
            stolen_core_seconds=spent.stolen,
        )


def watch_for(run: Run, file: ProcessFile) -> Disturbances:
    """Returns the watch over the current process; rank 0 also watches the cores if our launcher started all processes here.

    Args:
        run: What is trained.
        file: The file of the present process.
    """
    mirror = importlib.import_module(FRAMEWORKS[run.framework] + ".program")
    return Disturbances(mirror.num_compilations, watches_cores=file.rank == 0 and LAUNCHED_AT in os.environ)
