"""A checkpoint: a folder `checkpoints/step-000120` of a run directory, which is complete or does not exist.

Its state is in one file, or in one for each rank. `commit.json` has the digests of these files, and a folder without a valid
`commit.json` is not a checkpoint.
"""

import dataclasses
import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from samestep.common.errors import ConfigError
from samestep.common.files.reading import Unreadable, read_json, read_sha256
from samestep.common.program import TrainState
from samestep.common.runtime.checkpoints.rank_state import name_of, read_pieces
from samestep.common.runtime.state_file import STATE, read_state

FOLDER = "checkpoints"
COMMIT = "commit.json"
SCHEMA = 1
_NAME = re.compile(r"step-([0-9]{6,10})(?:-([0-9]{1,4}))?")
"""The second number distinguishes a checkpoint from a damaged one of the same step."""


@dataclasses.dataclass(frozen=True)
class Commit:
    """The contents of `commit.json`, which describes a checkpoint.

    Attributes:
        step: How many steps the run had taken.
        begun: The step at which the run began, the same in every attempt.
        attempt: The attempt at the run that wrote it, from 1.
        program: The SHA-256 digest of the description of the run.
        losses: The digest of the losses of the steps from `begun` to `step`, as float64.
        files: Name -> (bytes, digest) of each file next to it.
        schema: The schema of the checkpoint.
    """

    step: int
    begun: int
    attempt: int
    program: str
    losses: str
    files: Mapping[str, tuple[int, str]] = dataclasses.field(default_factory=dict)
    schema: int = SCHEMA


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """A complete checkpoint.

    Attributes:
        path: Its folder.
        commit: The contents of its `commit.json`.
    """

    path: Path
    commit: Commit

    @property
    def bytes(self) -> int:
        """The size of its files."""
        return sum(size for size, _ in self.commit.files.values())

    def state(self) -> TrainState:
        """Reads the state that it holds.

        Raises:
            Unreadable: Its files do not make up a state.
        """
        names = list(self.commit.files)
        return read_state(self.path) if names == [STATE] else read_pieces(self.path, names)


@dataclasses.dataclass(frozen=True)
class Damaged:
    """A folder with the name of a checkpoint that is not one.

    Attributes:
        path: The folder.
        reason: What is wrong with it.
    """

    path: Path
    reason: str


def find_folders(directory: Path) -> list[Path]:
    """Returns the folders that may be checkpoints of a run, the newest first.

    Args:
        directory: The run directory.
    """
    try:
        names = os.listdir(directory / FOLDER)
    except OSError:
        return []
    found = [each for each in map(_NAME.fullmatch, names) if each]
    found.sort(key=lambda each: (int(each[1]), int(each[2] or 1)), reverse=True)
    return [directory / FOLDER / each[0] for each in found]


def find_checkpoints(directory: Path) -> Iterator[Checkpoint | Damaged]:
    """Yields the checkpoints of a run, the newest first; each is checked when the iteration reaches it.

    Args:
        directory: The run directory.
    """
    yield from map(_examined, find_folders(directory))


def _examined(path: Path) -> Checkpoint | Damaged:
    """Checks a folder: its commit, and the digest of every file."""
    try:
        commit = _commit(path / COMMIT)
    except Unreadable as error:
        return Damaged(path, f"{COMMIT}: {error}")
    if (name := _NAME.fullmatch(path.name)) and commit.step != int(name[1]):  # a copy may have another name
        return Damaged(path, f"{COMMIT} is of step {commit.step}")
    for name, (size, digest) in commit.files.items():
        try:
            if os.path.getsize(path / name) != size or read_sha256(path / name) != digest:
                return Damaged(path, f"{name} does not have the digest that {COMMIT} says")
        except (OSError, Unreadable) as error:
            return Damaged(path, f"{name}: {getattr(error, 'strerror', None) or error}")
    return Checkpoint(path, commit)


def _commit(path: Path) -> Commit:
    values = read_json(path)
    try:
        if values["schema"] != SCHEMA:  # pyrefly: ignore
            raise Unreadable(f"its schema is {values['schema']!r}, and {SCHEMA} can be read")
        commit = Commit(**values)  # pyrefly: ignore
        files = {str(name): (size, digest) for name, (size, digest) in commit.files.items()}
        numbers = (commit.step, commit.begun, commit.attempt, *(size for size, _ in files.values()))
        texts = (commit.program, commit.losses, *(digest for _, digest in files.values()))
    except (KeyError, TypeError, ValueError, AttributeError):
        raise Unreadable("it is not what a run writes") from None
    is_odd = any(type(number) is not int or number < 0 for number in numbers) or commit.begun > commit.step
    is_known = list(files) in ([STATE], [name_of(rank) for rank in range(len(files))])
    if is_odd or not all(isinstance(text, str) for text in texts) or not files or not is_known:
        raise Unreadable("it is not what a run writes")
    return dataclasses.replace(commit, files=files)


def read_saved(folder: Path, asked: str = "--start-from") -> TrainState:
    """Reads the state of a checkpoint, or of a finished run.

    Args:
        folder: The folder of the checkpoint or of the run.
        asked: The flag that named it, for messages.

    Raises:
        ConfigError: The folder holds no state, or a damaged one.
    """
    if not os.path.lexists(folder / COMMIT):
        return read_state(folder, asked)
    try:
        if isinstance(found := _examined(folder), Checkpoint):
            return found.state()
        reason = found.reason
    except Unreadable as error:
        reason = str(error)
    raise ConfigError(f"{asked} {folder} is a damaged checkpoint: {reason}; give another.")


def digest_saved(path: Path) -> str:
    """Computes the SHA-256 digest of a file, of the commit or state in a folder of ours, or of all files in another folder.

    Args:
        path: The file or the folder, as `--start-from` names it.

    Raises:
        Unreadable: There is no such file.
    """
    if not path.is_dir():
        return read_sha256(path)
    for name in (COMMIT, STATE):
        if os.path.lexists(path / name):
            return read_sha256(path / name)
    files = sorted(each for each in path.iterdir() if each.is_file())
    return hashlib.sha256(json.dumps([(each.name, read_sha256(each)) for each in files]).encode()).hexdigest()


def newest(directory: Path, program: str) -> tuple[Checkpoint | None, tuple[Damaged, ...]]:
    """Finds the newest complete checkpoint of a run.

    Args:
        directory: The run directory.
        program: The digest of the description of the run.

    Returns:
        The checkpoint, or None; and the newer ones that are damaged.

    Raises:
        ConfigError: The checkpoint belongs to another run.
    """
    damaged = []
    for found in find_checkpoints(directory):
        if isinstance(found, Damaged):
            damaged.append(found)
        elif found.commit.program != program:
            raise ConfigError(f"{found.path} belongs to another run than the config.json above it; move it away.")
        else:
            return found, tuple(damaged)
    return None, tuple(damaged)
