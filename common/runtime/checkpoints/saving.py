"""Saves checkpoints while a run trains: the step waits for a copy in memory, and a thread writes it."""

import dataclasses
import hashlib
import os
import sys
import threading
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Self

import numpy as np

from samestep.common.files.reading import open_plain
from samestep.common.files.removing import discard_folder
from samestep.common.program import Arrays, Program, TrainState
from samestep.common.request import Interval
from samestep.common.runtime.checkpoints.committed import Commit, find_folders, write_checkpoint
from samestep.common.runtime.measured import Saves
from samestep.common.runtime.process_file import ProcessFile
from samestep.common.steps.log import METRICS

_POLL_SECONDS = 0.02


class Saver:
    """Saves the state of a program now and then. Every process has one, and all decide alike. Use it as a context manager."""

    def __init__(self, file: ProcessFile, commit: Commit, every: Interval, keep: int, losses: Sequence[float]) -> None:
        """Saves nothing yet.

        Args:
            file: That of this process; rank 0 writes, into its directory.
            commit: That of the run's last step, which is not saved.
            every: How often to save.
            keep: How many checkpoints to keep.
            losses: Those of the steps before the first that is to come.
        """
        self._file, self._commit, self._every, self._keep = file, commit, every, keep
        self._digest = digest_losses(losses)
        self._thread: threading.Thread | None = None
        self._noting = threading.Lock()
        self._last = time.monotonic()
        self.saves = Saves()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        while self._is_writing:
            self._file.beat(self._commit.step)
            time.sleep(_POLL_SECONDS)

    @property
    def _is_writing(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def steps_left(self, step: int) -> int:
        """Returns how many steps may be taken in one go before the next is asked for.

        Args:
            step: How many steps have been taken.
        """
        return self._every.steps - step % self._every.steps if self._every.steps else sys.maxsize

    def offer(self, program: Program, step: int, losses: Sequence[float]) -> None:
        """Saves the state if it is time to; collective.

        Args:
            program: The program, between two steps.
            step: How many steps have been taken.
            losses: Those of the steps since the last call, where they are known.
        """
        self._digest.update(np.asarray(losses, "<f8").tobytes())
        if step == self._commit.step or not self._is_due(program, step):
            return
        self._last = time.monotonic()
        if program.agree(float(self._is_writing)):
            with self._noting:
                self.saves = dataclasses.replace(self.saves, skipped=self.saves.skipped + 1)
            return
        state = program.state()
        if self._file.rank == 0:
            commit = dataclasses.replace(self._commit, step=step, losses=self._digest.hexdigest())
            self._thread = threading.Thread(target=self._write, args=(_copied(state), commit))
            self._thread.start()
        self._note(stall_seconds=(time.monotonic() - self._last,))

    def _is_due(self, program: Program, step: int) -> bool:
        if self._every.steps:
            return step % self._every.steps == 0
        return program.agree(time.monotonic() - self._last) >= (self._every.seconds or 0.0)

    def _write(self, state: TrainState, commit: Commit) -> None:
        started, directory = time.monotonic(), self._file.directory
        try:
            with open_plain(directory / METRICS) as file:  # the log has the steps before a commit says so
                os.fsync(file.fileno())
            write_checkpoint(directory, state, commit)
            for old in find_folders(directory)[self._keep :]:
                discard_folder(old, directory)
            self._note(steps=(commit.step,), write_seconds=(time.monotonic() - started,))
        except Exception as error:  # a thread's error would end nothing: the run goes on, and its result says it
            why = f"{getattr(error, 'strerror', None) or error}"
            self._note(failed=(f"step {commit.step}: {why}",))
            print(f"samestep: the checkpoint of step {commit.step} was not saved: {why}", file=sys.stderr, flush=True)

    def _note(self, **more: tuple) -> None:
        with self._noting:
            now = {name: (*getattr(self.saves, name), *values) for name, values in more.items()}
            self.saves = dataclasses.replace(self.saves, **now)


class _NoSaver(Saver):
    """Saves nothing."""

    def __init__(self) -> None:
        self.saves, self._thread = Saves(), None

    def steps_left(self, step: int) -> int:
        return sys.maxsize

    def offer(self, program: Program, step: int, losses: Sequence[float]) -> None:
        pass


NO_SAVER = _NoSaver()


def digest_losses(losses: Sequence[float]) -> "hashlib._Hash":
    """Begins the digest of a run's losses.

    Args:
        losses: Those that are known so far.
    """
    return hashlib.sha256(np.asarray(losses, "<f8").tobytes())


def _copied(state: TrainState) -> TrainState:
    """Returns a state that the next step does not move: what a program hands out may be its own memory."""

    def copy(arrays: Arrays) -> Arrays:
        return {name: np.array(array) for name, array in arrays.items()}

    return dataclasses.replace(
        state,
        params=copy(state.params),
        slots={slot: copy(arrays) for slot, arrays in state.slots.items()},
        buffers=copy(state.buffers),
        local=tuple(copy(arrays) for arrays in state.local),
        counts=dict(state.counts),
    )
