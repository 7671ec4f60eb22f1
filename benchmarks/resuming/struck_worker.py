"""A worker that waits until each checkpoint is written, and kills itself in the first attempt after a given step."""

import os
import signal

from samestep.common.runtime.process_file import ProcessFile
from samestep.common.runtime.topology import RESTARTS
from tests.common.runtime import patient_worker

STRUCK = "SAMESTEP_BENCH_STRUCK"
"""The variable that says which process dies after how many steps, such as `rank-1 17`."""
_beat = ProcessFile.beat


def beat(self: ProcessFile, step: int) -> None:
    """Writes a heartbeat, or kills the process.

    Args:
        self: The file of this process.
        step: The number of steps that it has taken.
    """
    if f"{self.role} {step}" == os.environ.get(STRUCK) and os.environ.get(RESTARTS) == "0":
        os.kill(os.getpid(), signal.SIGKILL)
    _beat(self, step)


def main(arguments: list[str]) -> int:
    """Runs the worker, until it kills itself."""
    ProcessFile.beat = beat
    return patient_worker.main(arguments)
