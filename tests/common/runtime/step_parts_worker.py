"""A worker whose every step has one part more: `PART` names the function below that adds it to torch's program."""

import os
import time

from samestep.common.runtime.worker import worker

SECONDS = 0.02


def waiting() -> None:
    """The exchange of rank 1 is late, so rank 0 waits in it."""
    from samestep.torch_impl.strategies.c10d import FlatExchange

    right = FlatExchange._exchange

    def late(self: FlatExchange) -> None:
        time.sleep(SECONDS if os.environ["RANK"] == "1" else 0.0)
        right(self)

    FlatExchange._exchange = late


def computing() -> None:
    """Operators that nobody needs, before the pass."""
    import torch

    from samestep.torch_impl.program import TrainingProgram

    right, square = TrainingProgram.gradients, torch.ones(400, 400)

    def longer(self: TrainingProgram, batch: object) -> torch.Tensor:
        for _ in range(20):
            torch.mm(square, square)
        return right(self, batch)

    TrainingProgram.gradients = longer


def python() -> None:
    """Python that nobody needs, on a core for as long as it takes."""
    from samestep.torch_impl.program import TrainingProgram

    right = TrainingProgram.apply

    def longer(self: TrainingProgram) -> None:
        end = time.thread_time() + SECONDS
        while time.thread_time() < end:
            pass
        right(self)

    TrainingProgram.apply = longer


def main(arguments: list[str]) -> int:
    """Plants it, then works as usual."""
    {"waiting": waiting, "computing": computing, "python": python}[os.environ["PART"]]()
    return worker.main(arguments)
