"""A worker that times saves, copies of what it saves, and restores, and writes a line for each to the file named by TIMED."""

import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from samestep.common.program import Program, TrainState
from samestep.common.request import Launch
from samestep.common.runtime.checkpoints import resuming
from samestep.common.runtime.checkpoints.resuming import Beginning
from samestep.common.runtime.checkpoints.saving import Saver
from samestep.common.runtime.worker import loop, worker
from samestep.common.strategy import Run

TIMED = "SAMESTEP_BENCH_TIMED"
_offer, _find, _restore = Saver.offer, resuming.find_beginning, resuming.restore


def _say(**values: object) -> None:
    with Path(os.environ[TIMED]).open("a") as file:
        file.write(json.dumps(values) + "\n")


def offer(self: Saver, program: Program, step: int, losses: Sequence[float]) -> None:
    """Saves like every worker, and then copies what this process saved.

    Args:
        self: The saver.
        program: The program.
        step: The number of steps that it has taken.
        losses: The losses since the last call.
    """
    before, began = len(self.saves.stall_seconds), time.thread_time()
    _offer(self, program, step, losses)
    busy = time.thread_time() - began
    if self._thread is not None:
        self._thread.join()
    if len(self.saves.stall_seconds) > before:
        arrays, began = held(program), time.thread_time()
        copies = [np.array(array) for array in arrays]
        copy, size = time.thread_time() - began, sum(array.nbytes for array in copies)
        _say(kind="save", stall=self.saves.stall_seconds[-1], busy=busy, copy=copy, bytes=size)


def held(program: Program) -> list[np.ndarray]:
    """Returns the arrays that a process saves.

    Args:
        program: The program.
    """
    if (pieces := program.shards()) is not None:
        return [piece.array for piece in pieces]
    state = program.state()
    groups: list[Mapping[str, np.ndarray]] = [state.params, state.buffers, *state.slots.values()]
    return [array for group in groups for array in group.values()]


def find_beginning(directory: Path, run: Run, launch: Launch) -> Beginning:
    """Finds where to begin like every worker; the arguments are those of `resuming.find_beginning`."""
    began, busy = time.perf_counter(), time.thread_time()
    found = _find(directory, run, launch)
    busy = time.thread_time() - busy
    _say(kind="read", seconds=time.perf_counter() - began, busy=busy, bytes=_size(found.state))
    return found


def _size(state: TrainState | None) -> int:
    groups = [] if state is None else [state.params, *state.slots.values()]
    return sum(array.nbytes for group in groups for array in group.values())


def restore(program: Program, beginning: Beginning, *more: object) -> None:
    """Restores like every worker; the arguments are those of `resuming.restore`."""
    took, worked = [], []
    inner = program.restore

    def timed(state: TrainState) -> None:
        began, busy = time.perf_counter(), time.process_time()
        inner(state)
        took.append(time.perf_counter() - began)
        worked.append(time.process_time() - busy)

    vars(program)["restore"] = timed
    _restore(program, beginning, *more)  # pyrefly: ignore
    del vars(program)["restore"]
    _say(kind="restore", seconds=sum(took), busy=sum(worked))


def main(arguments: list[str]) -> int:
    """Runs the worker, and times it."""
    Saver.offer = offer
    loop.find_beginning, loop.restore = find_beginning, restore
    return worker.main(arguments)
