"""Writes a checkpoint: one process writes the whole state, or each process writes what it holds and the first one commits it.

It is written as `step-000120.part`. Each file goes to the disk, then `commit.json`, which holds their digests, and then the
folder gets its final name. Nothing is written twice under one name, since a process that overwrites a checkpoint in place mixes
two steps if it dies halfway (docs/found.md).
"""

import dataclasses
import itertools
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

from samestep.common.files.reading import Unreadable, read_json, read_sha256
from samestep.common.files.removing import discard_folder
from samestep.common.files.writing import create, make_folder, rename_folder, replacing
from samestep.common.program import StatePiece, TrainState
from samestep.common.runtime.checkpoints.committed import COMMIT, FOLDER, Checkpoint, Commit
from samestep.common.runtime.checkpoints.rank_state import dump_pieces, name_of
from samestep.common.runtime.state_file import STATE, dump_state

Fill = Callable[[IO[bytes]], object]
_POLL_SECONDS = 0.01
_PART = ".part"
"""The suffix of a checkpoint that is not complete yet."""


def write_checkpoint(directory: Path, state: TrainState, commit: Commit) -> Checkpoint:
    """Writes a checkpoint of a single file; when this returns, it is on the disk.

    Args:
        directory: The run directory.
        state: The state.
        commit: Its commit, without the files.

    Raises:
        OSError: It cannot be written, for example on a full disk. Nothing of it remains.
        WorkerFailed: Something is in its place that samestep did not write.
    """
    part = begin_checkpoint(directory, commit.step)
    try:
        return _commit(
            part, directory, commit, {STATE: _write(part / STATE, directory, lambda f: dump_state(f, state))}
        )
    finally:
        discard_folder(part, directory)


def begin_checkpoint(directory: Path, step: int) -> Path:
    """Makes the folder of a new checkpoint and returns it; removes those that interrupted attempts left unfinished.

    Args:
        directory: The run directory.
        step: The step of the checkpoint.
    """
    part = folder_of(directory, step)
    for left in (directory / FOLDER).glob(f"*{_PART}"):  # one checkpoint is written at a time
        discard_folder(left, directory)
    make_folder(directory / FOLDER, directory)
    make_folder(part, directory)
    return part


def folder_of(directory: Path, step: int) -> Path:
    """Returns the folder of a checkpoint while it is written.

    Args:
        directory: The run directory.
        step: The step of the checkpoint.
    """
    return directory / FOLDER / f"step-{step:06d}{_PART}"


def write_own(directory: Path, step: int, rank: int, pieces: Sequence[StatePiece]) -> None:
    """Writes the file of one rank, and next to it a report that it is on the disk, or why it is not.

    Args:
        directory: The run directory.
        step: The step of the checkpoint, whose folder exists.
        rank: The rank.
        pieces: The pieces that it saves.
    """
    part = folder_of(directory, step)
    try:
        size, digest = _write(part / name_of(rank), directory, lambda file: dump_pieces(file, pieces))
        said: dict[str, object] = {"bytes": size, "sha256": digest}
    except Exception as error:  # any error: the first rank has to learn of it
        discard_folder(part / name_of(rank), directory)  # makes room for the report
        said = {"failed": f"{getattr(error, 'strerror', None) or error}"}
    with replacing(_word(part, rank), directory) as file:
        file.write(json.dumps(said).encode())


def commit_sharded(directory: Path, commit: Commit, num_ranks: int, seconds: float) -> Checkpoint:
    """Waits for the files of all ranks, and commits them; when this returns, the checkpoint is on the disk.

    Args:
        directory: The run directory.
        commit: Its commit, without the files.
        num_ranks: The number of ranks.
        seconds: How long to wait.

    Raises:
        OSError: The checkpoint, or the file of a rank, cannot be written. Nothing of it remains.
    """
    part, deadline = folder_of(directory, commit.step), time.monotonic() + seconds
    try:
        said = [_hear(part, rank, deadline) for rank in range(num_ranks)]
        for rank in range(num_ranks):
            discard_folder(_word(part, rank), directory)
        return _commit(part, directory, commit, {name_of(rank): file for rank, file in enumerate(said)})
    finally:
        discard_folder(part, directory)


def _word(part: Path, rank: int) -> Path:
    return part / f"rank-{rank}.json"


def _hear(part: Path, rank: int, deadline: float) -> tuple[int, str]:
    """Waits for the report of a rank on its file; returns the bytes and the digest of the file."""
    while not os.path.lexists(_word(part, rank)):
        if time.monotonic() > deadline:
            raise OSError(f"rank {rank} has not written its part")
        time.sleep(_POLL_SECONDS)
    said = read_json(_word(part, rank))
    if not isinstance(said, dict) or "failed" in said:
        raise OSError(f"rank {rank}: {said['failed'] if isinstance(said, dict) else said}")
    return said["bytes"], said["sha256"]


def _write(path: Path, below: Path, fill: Fill) -> tuple[int, str]:
    """Writes a new file and waits until it is on the disk; returns its bytes and digest."""
    with os.fdopen(create(path, below), "w+b") as file:
        fill(file)
        file.flush()
        os.fsync(file.fileno())
    try:
        return os.path.getsize(path), read_sha256(path)
    except Unreadable as error:
        raise OSError(str(error)) from None


def _commit(part: Path, directory: Path, commit: Commit, files: Mapping[str, tuple[int, str]]) -> Checkpoint:
    """Writes the commit of files that are on the disk, and gives the folder its name."""
    whole = dataclasses.replace(commit, files=files)
    _write(part / COMMIT, directory, lambda file: file.write(json.dumps(dataclasses.asdict(whole)).encode()))
    plain = part.stem
    names = itertools.chain([plain], (f"{plain}-{number}" for number in itertools.count(2)))
    name = next(name for name in names if not os.path.lexists(part.with_name(name)))
    return Checkpoint(rename_folder(part, name, directory), whole)
