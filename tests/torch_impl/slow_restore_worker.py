"""A worker whose state that is continued comes late to the process that others call, as on a busy machine."""

import time

from samestep.common.program import TrainState
from samestep.common.runtime.worker import worker
from samestep.torch_impl.rpc.group import ServingProgram

restore = ServingProgram.restore


def restore_late(self: ServingProgram, state: TrainState) -> None:
    time.sleep(0.3)
    restore(self, state)


def main(arguments: list[str]) -> int:
    ServingProgram.restore = restore_late
    return worker.main(arguments)
