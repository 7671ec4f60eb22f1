"""Saves checkpoints while a run trains: training waits only for a copy in memory, which a thread writes."""

import contextlib
import dataclasses
import functools
import hashlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from samestep.common.batch import Batch
from samestep.common.files.reading import open_plain
from samestep.common.files.removing import discard_folder
from samestep.common.flag_words import read_interval
from samestep.common.flags import FieldValues
from samestep.common.gathering import Gathering
from samestep.common.program import Arrays, Program, StatePiece, TrainState
from samestep.common.request import Launch
from samestep.common.runtime.checkpoints.committed import Commit, find_folders
from samestep.common.runtime.checkpoints.ledger_file import write_entries
from samestep.common.runtime.checkpoints.writing import begin_checkpoint, commit_sharded, write_checkpoint, write_own
from samestep.common.runtime.measured import Saves
from samestep.common.runtime.process_file import ProcessFile
from samestep.common.steps.log import METRICS
from samestep.common.strategy import Run

_POLL_SECONDS = 0.02


class Saver(contextlib.AbstractContextManager["Saver"]):
    """Saves the state of a program at intervals. Every process has a saver, and all decide alike. Use it as a context manager."""

    def __init__(
        self,
        file: ProcessFile,
        commit: Commit,
        run: Run,
        launch: Launch,
        losses: Sequence[float],
        damaged: Sequence[Path] = (),
    ) -> None:
        """Starts without saving anything.

        Args:
            file: The file of this process; checkpoints go into its directory.
            commit: The commit of the run's last step, which is not saved; those of other steps are made from it.
            run: What is trained.
            launch: Says how often to save, how many to keep, and how long to wait for the other ranks.
            losses: The losses of the steps before this attempt.
            damaged: Folders that do not count among those to keep.
        """
        self._damaged = damaged
        self._file, self._commit, self._launch = file, commit, launch
        self._num_ranks = sum(not spec.serves for spec in run.strategy.topology(run))
        self._every = read_interval(launch.save_every or "")
        self._digest = digest_losses(losses)
        self._gathering = Gathering()
        self._thread: threading.Thread | None = None
        self._noting = threading.Lock()
        self._last = time.monotonic()
        self.saves = Saves()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            self._succeeds(self._list_examples, self._commit)
        while self._is_writing:
            self._file.beat(self._commit.step)
            time.sleep(_POLL_SECONDS)

    @property
    def _is_writing(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def follow(self, stream: Iterator[Batch]) -> Iterator[Batch]:
        """Yields batches that record which examples are gathered from them."""
        return (dataclasses.replace(batch, gathering=self._gathering) for batch in stream)

    def steps_left(self, step: int) -> int:
        """Returns how many steps may be taken before the next call of `offer`.

        Args:
            step: How many steps have been taken.
        """
        return self._every.steps - step % self._every.steps if self._every.steps else sys.maxsize

    def offer(self, program: Program, step: int, losses: Sequence[float]) -> None:
        """Saves the state if it is due; collective.

        Args:
            program: The program, between two steps.
            step: How many steps have been taken.
            losses: The losses of the steps since the last call, where they are known.
        """
        self._digest.update(np.asarray(losses, "<f8").tobytes())
        self._gathering.close()
        if step == self._commit.step or not self._is_due(program, step):
            return
        self._last = time.monotonic()
        self._succeeds(self._list_examples, dataclasses.replace(self._commit, step=step))
        if program.agree(float(self._is_writing)):
            with self._noting:
                self.saves = dataclasses.replace(self.saves, skipped=self.saves.skipped + 1)
            return
        commit = dataclasses.replace(self._commit, step=step, losses=self._digest.hexdigest())
        if (pieces := program.shards()) is not None:
            if self._begin(program, commit):
                copies = [dataclasses.replace(piece, array=np.array(piece.array)) for piece in pieces]
                self._start(self._write_own, copies, commit)
        elif (state := program.state()) and self._file.rank == 0:
            write = functools.partial(write_checkpoint, self._file.directory, _copied(state), commit)
            self._start(self._commit_by, write, commit)
        self._note(stall_seconds=(time.monotonic() - self._last,))

    def _list_examples(self) -> None:
        file = self._file
        write_entries(file.directory, file.role, self._commit.attempt, self._gathering.take())

    def _start(self, write: Callable[..., None], *arguments: object) -> None:
        self._thread = threading.Thread(target=write, args=arguments)
        self._thread.start()

    def _begin(self, program: Program, commit: Commit) -> bool:
        """Makes the first rank create the folder before any rank writes into it; returns whether that succeeded."""
        make = functools.partial(begin_checkpoint, self._file.directory, commit.step)
        return not program.agree(float(self._file.rank == 0 and not self._succeeds(make, commit)))

    def _is_due(self, program: Program, step: int) -> bool:
        if self._every.steps:
            return step % self._every.steps == 0
        return program.agree(time.monotonic() - self._last) >= (self._every.seconds or 0.0)

    def _write_own(self, pieces: Sequence[StatePiece], commit: Commit) -> None:
        """Writes what this rank holds; the first rank then waits for the others, and commits."""
        directory, patience = self._file.directory, self._launch.timeout_seconds
        try:
            write_own(directory, commit.step, self._file.rank, pieces)
        except Exception as error:  # the first rank waits in vain and reports it
            print(f"samestep: the part of step {commit.step} was not saved: {_why(error)}", file=sys.stderr, flush=True)
        if self._file.rank == 0:
            self._commit_by(functools.partial(commit_sharded, directory, commit, self._num_ranks, patience), commit)

    def _commit_by(self, write: Callable[[], object], commit: Commit) -> None:
        """Puts a checkpoint on the disk, and removes the oldest ones that are not to be kept."""
        started, directory = time.monotonic(), self._file.directory

        def save() -> None:
            with open_plain(directory / METRICS) as file:  # the log must have the steps before the commit
                os.fsync(file.fileno())
            write()
            folders = find_folders(directory)
            whole = [each for each in folders if each not in self._damaged]
            for old in folders[folders.index(whole[: self._launch.keep][-1]) + 1 :]:
                discard_folder(old, directory)
            self._note(steps=(commit.step,), write_seconds=(time.monotonic() - started,))

        self._succeeds(save, commit)

    def _succeeds(self, save: Callable[[], object], commit: Commit) -> bool:
        """Runs a part of saving; returns whether it succeeded. If not, the run goes on, and its result has the reason."""
        try:
            save()
            return True
        except Exception as error:  # in a thread, it would end nothing
            why = _why(error)
            self._note(failed=(f"step {commit.step}: {why}",))
            print(f"samestep: the checkpoint of step {commit.step} was not saved: {why}", file=sys.stderr, flush=True)
            return False

    def _note(self, **more: tuple) -> None:
        with self._noting:
            now: FieldValues = {name: (*getattr(self.saves, name), *values) for name, values in more.items()}
            self.saves = dataclasses.replace(self.saves, **now)


def digest_losses(losses: Sequence[float]) -> "hashlib._Hash":
    """Begins the digest of a run's losses.

    Args:
        losses: The losses that are known so far.
    """
    return hashlib.sha256(np.asarray(losses, "<f8").tobytes())


def _why(error: Exception) -> str:
    return f"{getattr(error, 'strerror', None) or error}"


def _copied(state: TrainState) -> TrainState:
    """Returns a state that the next step does not change; an array that does not own its memory may be the program's."""

    def copy(arrays: Arrays) -> Arrays:
        return {name: array if array.flags.owndata else np.array(array) for name, array in arrays.items()}

    return dataclasses.replace(
        state,
        params=copy(state.params),
        slots={slot: copy(arrays) for slot, arrays in state.slots.items()},
        buffers=copy(state.buffers),
        local=tuple(copy(arrays) for arrays in state.local),
        counts=dict(state.counts),
    )
