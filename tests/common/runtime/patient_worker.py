"""A worker that waits until a checkpoint is written before it takes the next step, so that none is skipped."""

from collections.abc import Sequence

from samestep.common.program import Program
from samestep.common.runtime.checkpoints.saving import Saver
from samestep.common.runtime.worker import worker

offer = Saver.offer


def offer_and_wait(self: Saver, program: Program, step: int, losses: Sequence[float]) -> None:
    offer(self, program, step, losses)
    if self._thread is not None:
        self._thread.join()


def main(arguments: list[str]) -> int:
    Saver.offer = offer_and_wait
    return worker.main(arguments)
