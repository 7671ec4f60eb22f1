"""How long after an engine's own notice samestep has told what happened and ended."""

import os
import select
import threading
import time
from collections.abc import Callable
from pathlib import Path

from tests.engines.commands import Process, descendants, workers_of
from tests.engines.slurm_box import SlurmBox

NOTICE_SECONDS = 3.0
"""How long it may take."""
OVER = ("TIMEOUT", "OUT_OF_MEMORY", "PREEMPTED", "NODE_FAIL", "CANCELLED", "FAILED", "COMPLETED")
"""The states of a job of Slurm that has ended."""
DRIVERS = {"mpi": "mpirun", "torchrun": "torch.distributed.run", "ray": "ray_job.py"}
"""The engine's own command, which ends when the engine says that a run has ended."""


class Notice:
    """The moment in which an engine says that a run has ended, as a thread sees it."""

    def __init__(self, wait: Callable[[], object]) -> None:
        """Begins to wait.

        Args:
            wait: Returns at that moment.
        """
        self._seen: list[float] = []
        self._thread = threading.Thread(target=self._watch, args=(wait,), daemon=True)
        self._thread.start()

    @property
    def moment(self) -> float:
        """When it was."""
        self._thread.join(timeout=10)
        return self._seen[0]

    def _watch(self, wait: Callable[[], object]) -> None:
        wait()
        self._seen.append(time.monotonic())


def slurms_notice(slurm: SlurmBox, number: str) -> Notice:
    """Slurm's word for a job that is over."""

    def wait() -> None:
        while slurm.state(number) not in OVER:
            time.sleep(0.1)

    return Notice(wait)


def commands_notice(process: Process, engine: str) -> Notice:
    """The end of an engine's own command below samestep's."""
    ends = os.pidfd_open(descendants(process.pid, DRIVERS[engine])[0])
    return Notice(lambda: select.select([ends], [], []))


def told_in_time(process: Process, directory: Path, notice: Notice, cause: Callable[[], object], what: str) -> str:
    """What a command says of a run that comes to an end: with exit code 1, soon after the engine itself, and with nothing left.

    Args:
        process: The command.
        directory: The directory of the run.
        notice: The engine's.
        cause: Brings it about.
        what: It is, to be printed with the seconds.
    """
    begun = time.monotonic()
    cause()
    _, told = process.communicate(timeout=150)
    until = time.monotonic()
    left = workers_of(directory)
    print(f"\n{what}: the engine {notice.moment - begun:.1f} s after it, samestep {until - notice.moment:.1f} s later")
    assert process.returncode == 1, told
    assert until - notice.moment < NOTICE_SECONDS
    assert not left
    return told
