"""A worker that comes to grief in one way: `FAULT` names one of the functions below, called before the worker's main."""

import ctypes
import errno
import os
import resource
import signal
import time
from collections.abc import Callable

from samestep.common.errors import Diverged
from samestep.common.runtime.worker import worker

RANK = "FAULT_RANK"
"""The rank that it befalls; every rank if it is not set."""


def at_step(step: int, happens: Callable[[], None]) -> None:
    """Something happens in torch's program before it takes a step."""
    from samestep.torch_impl.program import TrainingProgram

    right = TrainingProgram.step

    def taken(self: TrainingProgram, batch: object) -> None:
        if batch.step == step and os.environ.get(RANK) in (None, os.environ.get("RANK")):
            happens()
        right(self, batch)

    TrainingProgram.step = taken


def raises() -> None:
    def boom() -> None:
        print("the last thing it said", flush=True)
        raise RuntimeError("the device fell off the bus\nand rolled away")

    at_step(3, boom)


def exits() -> None:
    def leave() -> None:
        print("the last thing it said", flush=True)
        os._exit(7)

    at_step(3, leave)


def killed() -> None:
    def die() -> None:
        print("the last thing it said", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)

    at_step(3, die)


def crashes() -> None:
    def read_nowhere() -> None:
        print("the last thing it said", flush=True)
        ctypes.string_at(0)

    at_step(3, read_nowhere)


def diverges_and_takes_the_other_along() -> None:
    def end() -> None:
        if os.environ["RANK"] == "0":
            raise Diverged("the loss of step 3 is nan")
        time.sleep(0.5)
        os.abort()

    at_step(3, end)


def hangs_in_first_step() -> None:
    at_step(0, lambda: time.sleep(600))


def hangs_in_training() -> None:
    def hang() -> None:
        print("the last thing it said", flush=True)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(600)

    at_step(3, hang)


def hangs_in_teardown() -> None:
    from samestep.torch_impl.program import TrainingProgram

    def holds_on(self: TrainingProgram) -> None:
        if os.environ["RANK"] == "0":
            time.sleep(600)

    TrainingProgram.close = holds_on


def is_slow_but_alive() -> None:
    for step in range(1, 8):
        at_step(step, lambda: time.sleep(0.9))


def never_starts() -> None:
    print("the last thing it said", flush=True)
    time.sleep(600)


def ends_at_once() -> None:
    os._exit(3)


def _full(name: str) -> None:
    """What is opened under a new name is `/dev/full` instead, where the kernel finds no space for anything written."""
    right = os.open

    def opened(path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        descriptor = right(path, flags, mode, dir_fd=dir_fd)
        if flags & os.O_EXCL and os.path.basename(path).startswith(name):
            os.dup2(right("/dev/full", os.O_RDWR), descriptor)
        return descriptor

    os.open = opened


def full_at_metrics() -> None:
    _full("metrics.jsonl")


def full_at_state() -> None:
    _full("state.npz")


def full_at_everything() -> None:
    _full("")


def full_log_too() -> None:
    """Neither a file nor the log has room; `error.json` has been given its own."""
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, 1)
    os.dup2(full, 2)
    full_at_everything()


def full_in_place() -> None:
    """Not even `error.json` can be written over."""

    def no_room(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    worker.write_error = no_room
    full_at_everything()


def none() -> None:
    """Nothing happens."""


def main(arguments: list[str]) -> int:
    """Prepares the fault, then does what every worker does; whatever crashes leaves no core."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    globals()[os.environ.get("FAULT", "none")]()
    return worker.main(arguments)
