"""A worker that others call and that is slow, as on a busy machine: it restores late, and after some steps it counts late."""

import itertools
import time

from samestep.common.program import TrainState
from samestep.common.runtime.worker import worker
from samestep.torch_impl.rpc.group import ServingProgram

restore = ServingProgram.restore
pauses = itertools.cycle([0.1, 0.1, 0, 0, 0])


def restore_late(self: ServingProgram, state: TrainState) -> None:
    time.sleep(0.3)
    restore(self, state)


def count_late(self: ServingProgram) -> None:
    """The loop counts what was sent after it."""
    time.sleep(next(pauses))


def main(arguments: list[str]) -> int:
    ServingProgram.restore = restore_late
    ServingProgram.sync = count_late
    return worker.main(arguments)
