"""The run directory: plain files, readable however the run ended.

config.json         the complete request
metrics.jsonl       one line per window of steps, or per part of a long one, as training goes
process-ROLE.json   each process: its phase while it runs, what it measured when it is done
state.npz           step, skipped, params/NAME, slots/SLOT/NAME, buffers/NAME, local/RANK/NAME; gone once the run is judged, but
                    for --keep-state, a step that was not the same, and a run that failed
ROLE.log            everything the process printed
trace.json          when each device did what in the traced steps; profile-ROLE.*: what the framework's profiler kept of them
model/              of a user's model: what a worker found out about it, and its initial weights
result.json         the RunResult; or error.json: what stopped the run
"""

import contextlib
import dataclasses
import fcntl
import json
import os
import shutil
import sys
import typing
from collections.abc import Iterator
from pathlib import Path

from samestep.common.errors import ERRORS, ConfigError, SamestepError, unknown
from samestep.common.files import Unreadable, read_json
from samestep.common.request import RunConfig
from samestep.common.techniques import Techniques

_ERROR_BYTES = 2048
_WRITTEN = (
    "config.json",
    "result.json",
    "error.json",
    "metrics.jsonl",
    "process-*.json",
    "state.npz",
    "trace*.json",
    "profile-*",
    "*.log",
    "*.tmp",
)
"""What samestep writes into a run directory; nothing else is removed from one."""
_DESCRIPTION = ("model.json", "describe.json", "initial.npz", "data.npz", "matching.json", "code.json")
"""And into the folder with the description of a user's model."""
DESCRIBE = "describe.json"
"""What asks for a description of the user's model."""
MODEL = "model"
"""The folder of the description in a run directory."""


def refuse_taken(directory: Path) -> None:
    """Keeps a run from being overwritten.

    Raises:
        ConfigError: The directory holds one, or cannot be one.
    """
    try:
        if any((directory / name).exists() for name in ("config.json", "result.json", "error.json")):
            raise ConfigError(
                f"--out {directory} already holds a run; nothing was overwritten: name another directory."
            )
        nearest = next(path for path in (directory, *directory.absolute().parents) if path.exists())
    except OSError as error:
        raise ConfigError(f"--out {directory} cannot be written ({error.strerror}); name another directory.") from None
    if not (nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK)):
        what = "is no directory" if not nearest.is_dir() else "is not writable"
        raise ConfigError(f"--out {directory} cannot be written ({nearest} {what}); name another directory.")


def write_json(path: Path, value: object) -> None:
    """Writes a file whole or not at all.

    Args:
        path: The file.
        value: Plain values and dataclasses.
    """
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(value, default=dataclasses.asdict, indent=1) + "\n")


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yields a name to write a file under, which then takes its place; nothing is left if that fails, as on a full disk."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def open_run(directory: Path, config: RunConfig) -> Path:
    """Makes a run directory, for its user alone, with its `config.json` and a reserved `error.json`; returns it.

    Args:
        directory: Where to make it; it must not hold a run yet.
        config: The request that it will hold.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    reserve_error(directory)
    if config.described is not None and Path(config.described) != directory / MODEL:
        shutil.copytree(config.described, directory / MODEL, dirs_exist_ok=True)
        config = dataclasses.replace(config, described=MODEL)
    write_json(directory / "config.json", config)
    return directory


def discard_run(directory: Path) -> None:
    """Removes what samestep wrote into a run directory, and the directory unless it holds something else."""
    for folder in (directory / MODEL / "torch", directory / MODEL, directory):
        for file in (file for pattern in (*_WRITTEN, *_DESCRIPTION) for file in folder.glob(pattern)):
            with contextlib.suppress(OSError):  # a folder of that name
                file.unlink()
        with contextlib.suppress(OSError):  # what someone else put there stays
            folder.rmdir()


def read_config(directory: Path) -> RunConfig:
    """Reads the request that a run directory holds.

    Raises:
        ConfigError: It holds none, or one with other fields than a request has.
    """
    try:
        fields = _fields(RunConfig, "it", read_json(directory / "config.json"))
        fields["techniques"] = Techniques(**_fields(Techniques, "techniques", fields.get("techniques")))
        if fields.get("described") is not None:  # relative, so that the directory can be moved to another machine
            fields["described"] = str(directory / MODEL)
        return RunConfig(**fields)
    except Unreadable as error:
        raise ConfigError(
            f"{directory} holds no readable config.json: {error}; `samestep run --prepare` makes one."
        ) from None


def _fields(owner: type, what: str, values: object) -> dict[str, typing.Any]:  # checked when they are parsed
    """Fields as JSON has them.

    Args:
        owner: The dataclass that they are of.
        what: What holds them, for the message.
        values: As JSON has them.
    """
    if not isinstance(values, dict):
        raise Unreadable(f"{what} is {values!r}, not an object")
    names = [field.name for field in dataclasses.fields(owner)]
    for name in values:
        if name not in names:
            raise Unreadable(str(unknown("field", name, names)).removesuffix("."))
    return values


def reserve_error(directory: Path) -> None:
    """Puts an `error.json` into a new run directory, to be removed once there is a result.

    If a full disk or the parent's death ends the run, the file still records that it did not end. Better reasons are
    written over it in place, which needs no further room.
    """
    error = {"type": "WorkerFailed", "role": "", "message": f"the run in {directory} was cut off before it ended"}
    (directory / "error.json").write_text(json.dumps(error).ljust(_ERROR_BYTES))


def write_error(directory: Path, role: str, error: BaseException, first: bool = True) -> None:
    """Writes down what stopped the run, for the parent and for later readers of the directory.

    Args:
        directory: The run directory.
        role: The process that the error came from, or "parent".
        error: Any exception; one that is not ours is described by its type and its first line.
        first: Whether to keep an error that a process has written already: the first one is the cause.
    """
    kind, message = type(error).__name__, str(error)
    if kind not in ERRORS:
        lines = [line.strip() for line in message.splitlines() if line.strip()] or [""]
        told = lines[:3] if lines[0].endswith(":") else lines[:1]  # TensorFlow opens with "Graph execution error:"
        kind, message = "WorkerFailed", f"{kind}: {' '.join(told)}"
    values = {"type": kind, "role": role, "message": message}
    if not directory.is_dir() or (directory / "result.json").exists():
        return  # somebody removed it, or there is nothing to explain
    try:
        with os.fdopen(os.open(directory / "error.json", os.O_RDWR | os.O_CREAT, 0o600), "r+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if not (first and read_error(directory)):
                file.write(json.dumps(values).ljust(_ERROR_BYTES))
                file.truncate()
    except OSError as failure:
        print(f"could not write error.json: {failure}", file=sys.stderr)


def read_error(directory: Path) -> tuple[str, SamestepError] | None:
    """The error that a process left in a run directory: its role, and the exception it was; None if none did."""
    try:
        values = read_json(directory / "error.json")
        role, kind, message = (values[name] for name in ("role", "type", "message"))  # pyrefly: ignore
        return (
            (role, ERRORS[kind](message)) if role and all(isinstance(text, str) for text in (role, message)) else None
        )
    except (Unreadable, KeyError, TypeError):
        return None  # somebody removed or damaged it
