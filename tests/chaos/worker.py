"""A worker that one fault strikes at a known moment; `tests.chaos` sets the environment.

`CHAOS_FAULT` is a signal, or the name of a function below. `CHAOS_ROLE` is the process that it befalls, and `CHAOS_MOMENT`
when. A process that only serves has no steps: while others train, the first process of the run strikes it. Whoever
strikes leaves the file `struck`, which says when.
"""

import ctypes
import dataclasses
import errno
import json
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from samestep.common.batch import Batch
from samestep.common.request import RunConfig
from samestep.common.runtime import state_file
from samestep.common.runtime.process_file import ProcessFile
from samestep.common.runtime.topology import own_index
from samestep.common.runtime.worker import loop, worker
from samestep.common.workload.table import resize

FAULT, ROLE, MOMENT, GROUP = "CHAOS_FAULT", "CHAOS_ROLE", "CHAOS_MOMENT", "CHAOS_MEMORY_GROUP"
MOMENTS = ("build", "first step", "train", "evaluate", "write")
"""While a process is built, takes its first step, trains, evaluates, and writes its last file."""
STEPS = {"first step": 0, "train": 5}
_PR_SET_PDEATHSIG = 1
_MEBIBYTE = 2**20
_ROOM_BYTES = 192 * _MEBIBYTE

OTHER_WIDTH = {"width": "16"}
"""The size in which a process, or a state to start from, differs from the others."""


class Struck:
    """The process that a fault befalls, seen from one that may be it."""

    def __init__(self, directory: Path) -> None:
        """Finds out who is who.

        Args:
            directory: The run directory.
        """
        run, _ = worker.read_run(directory)
        specs = run.strategy.topology(run)
        index = own_index(specs, os.environ)
        self.directory = directory
        self.role = os.environ[ROLE]
        self.is_self = specs[index].role == self.role
        serves = next(spec.serves for spec in specs if spec.role == self.role)
        self.is_up_to_me = self.is_self or (index == 0 and serves)
        self.writes_state = self.is_up_to_me and index == 0

    def mark(self) -> None:
        """Writes down when it happens."""
        (self.directory / "struck").write_text(str(time.monotonic()))

    def send(self, number: signal.Signals) -> None:
        """Sends it a signal."""
        pid = (
            os.getpid()
            if self.is_self
            else json.loads((self.directory / f"process-{self.role}.json").read_text())["pid"]
        )
        self.mark()
        os.kill(pid, number)


# --- when -------------------------------------------------------------------------------------------------------------


def at_phase(phase: str, happens: Callable[[], None]) -> None:
    """Something happens when this process enters a phase."""
    right = ProcessFile.enter

    def enter(self: ProcessFile, entered: str, step: int = 0) -> None:
        right(self, entered, step)
        if entered == phase:
            happens()

    ProcessFile.enter = enter


def at_step(step: int, happens: Callable[[], None]) -> None:
    """Something happens before this process takes a step."""
    right = loop.batches

    def batches(*arguments: object) -> Iterator[Batch]:
        for batch in right(*arguments):
            if batch.step == step:
                happens()
            yield batch

    loop.batches = batches


def at_last_write(name: str, happens: Callable[[], None]) -> None:
    """Something happens once a file is written, but not yet in its place.

    Args:
        name: The file.
        happens: What to do.
    """
    right_finish, right_replace, finishing = ProcessFile.finish, os.replace, [name == state_file.STATE]

    def finish(self: ProcessFile, measured: object) -> None:
        finishing[0] = True
        right_finish(self, measured)

    def replace(source: str, target: str, **where: int) -> None:
        if finishing[0] and Path(target).name == name:
            happens()
        right_replace(source, target, **where)

    ProcessFile.finish, os.replace = finish, replace


def at_moment(struck: Struck, moment: str, happens: Callable[[], None]) -> None:
    """Something happens to a process, or by the one that strikes it, at one of `MOMENTS`.

    Args:
        struck: Who.
        moment: When.
        happens: What to do.
    """
    if moment == "build":
        if struck.is_self:
            at_phase("build", happens)
    elif struck.is_up_to_me:
        if moment in STEPS:
            at_step(STEPS[moment], happens)
        elif moment == "evaluate":
            at_phase("evaluate", happens)
        else:
            at_last_write(state_file.STATE if struck.writes_state else f"process-{struck.role}.json", happens)


# --- what -------------------------------------------------------------------------------------------------------------


def cut_connection(struck: Struck) -> None:
    """All TCP connections of the process are shut down, in both directions."""
    for descriptor in map(int, os.listdir("/proc/self/fd")):
        try:
            with socket.socket(fileno=os.dup(descriptor)) as found:
                if found.family in (socket.AF_INET, socket.AF_INET6):
                    found.getpeername()  # it is connected; one that listens stays as it is
                    found.shutdown(socket.SHUT_RDWR)
        except OSError as error:
            if error.errno not in (errno.ENOTSOCK, errno.ENOTCONN, errno.EBADF):
                raise


def full_disk(struck: Struck) -> None:
    """The file system of the run directory is filled to its last byte."""
    with (struck.directory / "filler").open("wb", buffering=0) as filler:
        for size in (2**20, 2**12, 1):
            try:
                while True:
                    filler.write(bytes(size))
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise


def fork_server_killed(struck: Struck) -> None:
    """The process that forked this one is killed, as the system may do when memory is short."""
    os.kill(os.getppid(), signal.SIGKILL)


def short_memory(struck: Struck) -> None:
    """The control group is given little more memory than it uses, and this process takes all of it."""
    group = Path(os.environ[GROUP])
    used = int((group / "memory.usage_in_bytes").read_text())
    (group / "memory.limit_in_bytes").write_text(str(used + _ROOM_BYTES))
    Path("/proc/self/oom_score_adj").write_text("1000")  # it has the least claim to what is left
    taken = []
    while True:
        taken.append(np.ones(_MEBIBYTE))


def mismatched_shapes(struck: Struck) -> None:
    """This process is given a narrower model than the others; before anything else."""
    right = worker.read_config

    def narrower(run: Path) -> RunConfig:
        config = right(run)
        return dataclasses.replace(config, workload=resize(config.workload, OTHER_WIDTH))

    worker.read_config = narrower


def rank_twice(struck: Struck) -> None:
    """The process is started a second time, side by side with the first one."""
    if os.fork() == 0:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # so that nobody has to look for it


def nan_gradient(struck: Struck) -> None:
    """One example of step 5 is not a number, and so is its gradient; on every process that reads it."""
    right = loop.batches

    def batches(*arguments: object) -> Iterator[Batch]:
        for batch in right(*arguments):
            if batch.step == STEPS["train"]:
                inputs = batch.inputs.copy()
                inputs[batch.indices[-1]] = np.nan
                batch = dataclasses.replace(batch, inputs=inputs)
                struck.mark()
            yield batch

    loop.batches = batches


AT_ONCE = (mismatched_shapes, rank_twice)
"""Before the worker's main, not at a moment within."""


def main(arguments: list[str]) -> int:
    """Prepares the fault, then does what every worker does."""
    fault = os.environ.get(FAULT)
    if fault:
        _prepare(Struck(Path(arguments[0])), fault, os.environ[MOMENT])
    return worker.main(arguments)


def _prepare(struck: Struck, fault: str, moment: str) -> None:
    if fault in signal.Signals.__members__:
        at_moment(struck, moment, lambda: struck.send(signal.Signals[fault]))
        return
    happens = globals()[fault]
    if happens is nan_gradient:
        nan_gradient(struck)
    elif happens in AT_ONCE:
        if struck.is_self:
            struck.mark()
            happens(struck)
    else:

        def mark_and_strike() -> None:
            struck.mark()
            happens(struck)

        at_moment(struck, moment, mark_and_strike)
