"""A worker that waits for each checkpoint to be written, and kills itself once: in the first attempt, after a named step."""

import os
import signal

from samestep.common.runtime.process_file import ProcessFile
from samestep.common.runtime.topology import RESTARTS
from tests.common.runtime import patient_worker

STRUCK = "SAMESTEP_BENCH_STRUCK"
"""Which process dies, and after how many steps: `rank-1 17`."""
_beat = ProcessFile.beat


def beat(self: ProcessFile, step: int) -> None:
    """Shows that the process is alive, or ends it.

    Args:
        self: The file of the present process.
        step: How many steps it has taken.
    """
    if f"{self.role} {step}" == os.environ.get(STRUCK) and os.environ.get(RESTARTS) == "0":
        os.kill(os.getpid(), signal.SIGKILL)
    _beat(self, step)


def main(arguments: list[str]) -> int:
    """Does what every worker does, until it is struck."""
    ProcessFile.beat = beat
    return patient_worker.main(arguments)
