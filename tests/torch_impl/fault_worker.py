"""A rank that comes to grief where ranks meet: `FAULT` names one of the functions below, `FAULT_RANK` whom it befalls."""

import dataclasses
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator

from samestep.common.batch import Batch
from samestep.common.runtime.worker import loop, worker

FREE_PORT_ONLY = ("127.0.0.1", 0)


def late() -> None:
    time.sleep(1.5)


def absent() -> None:
    time.sleep(600)


def port_taken() -> None:
    taken = socket.create_server(("127.0.0.1", int(os.environ["MASTER_PORT"])))
    _kept.append(taken)


def nobody_answers() -> None:
    """A server of somebody else's, which takes connections and never says a word."""
    silent = socket.create_server(FREE_PORT_ONLY)
    _kept.append(silent)
    os.environ["MASTER_PORT"] = str(silent.getsockname()[1])


def nobody_listens() -> None:
    with socket.create_server(FREE_PORT_ONLY) as closed:
        os.environ["MASTER_PORT"] = str(closed.getsockname()[1])


def given_another_run() -> None:
    right = worker.read_config
    worker.read_config = lambda run: dataclasses.replace(right(run), seed=5, workload="digits-mlp+width=16")


def other_shapes() -> None:
    import torch.distributed as dist

    right = dist.all_reduce
    dist.all_reduce = lambda tensor, *rest, **more: right(tensor[:-1], *rest, **more)


def at_step_3(happens: Callable[[], None]) -> None:
    from samestep.torch_impl.program import TrainingProgram

    right = TrainingProgram.step

    def taken(self: TrainingProgram, batch: object) -> None:
        if batch.step == 3:
            happens()
        right(self, batch)

    TrainingProgram.step = taken


def compiles() -> None:
    import torch

    at_step_3(lambda: torch.compile(lambda x: x + 1, backend="eager")(torch.ones(1)))


def compiles_in_evaluation() -> None:
    """No fault yet: it fails if evaluation compiles anything. The backend compiles nothing further, which is fast."""
    from torch import nn

    from samestep.torch_impl.program import num_compilations

    compile_with, evaluate = nn.Module.compile, loop.evaluate

    def evaluated(*arguments: object) -> float | None:
        before = num_compilations()
        metric = evaluate(*arguments)
        assert (before, num_compilations()) == (1, 1), "evaluation was compiled once more"
        return metric

    nn.Module.compile = lambda self: compile_with(self, backend="eager")
    loop.evaluate = evaluated


def hangs() -> None:
    at_step_3(lambda: time.sleep(600))


def stopped() -> None:
    at_step_3(lambda: os.kill(os.getpid(), signal.SIGSTOP))


def stopped_between_steps() -> None:
    """Whatever program it has: that of a rank that only serves calls, too."""
    right = loop.batches

    def batches(*arguments: object) -> Iterator[Batch]:
        for batch in right(*arguments):
            if batch.step == 3:
                os.kill(os.getpid(), signal.SIGSTOP)
            yield batch

    loop.batches = batches


def killed() -> None:
    at_step_3(lambda: os.kill(os.getpid(), signal.SIGKILL))


_kept: list[socket.socket] = []


def main(arguments: list[str]) -> int:
    """Prepares the fault, then does what every worker does."""
    if os.environ.get("FAULT_RANK") == os.environ.get("RANK"):
        globals()[os.environ["FAULT"]]()
    return worker.main(arguments)
