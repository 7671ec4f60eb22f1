"""The run directory: plain files that can be read no matter how the run ended.

config.json         the complete request
metrics.jsonl       the log of steps: one line per window, or per part of a long one, as training goes; attempts add to it
process-ROLE.json   each process: its phase while it runs, what it measured when it is done
state.npz           step, skipped, params/NAME, slots/SLOT/NAME, buffers/NAME, local/RANK/NAME, counts/NAME; removed once the
                    run is judged, except with --keep-state, after a step that was not the same, or if the run failed
examples-ROLE.jsonl which examples the process gathered, a line for each checkpoint and one at the end
checkpoints/        what --save-every saved, a folder each: `checkpoints/committed.py`
ROLE.log            everything the process printed
trace.json          when each device did what in the traced steps; profile-ROLE.*: what the framework's profiler kept of them
model/              of a user's model: what a worker found out about it, and its initial weights
result.json         the RunResult; or error.json: what stopped the run
written.jsonl       all of these, as they were made: nothing else is ever removed
"""

import contextlib
import dataclasses
import fcntl
import json
import os
import sys
import traceback
import typing
from pathlib import Path

from samestep.common.errors import ERRORS, ConfigError, SamestepError, first_line, name_some, unknown
from samestep.common.files.locks import is_any_claimed
from samestep.common.files.reading import Unreadable, read_json
from samestep.common.files.writing import copy_file, make_folder, open_directory, reopen, replacing
from samestep.common.files.written import seal
from samestep.common.request import RunConfig
from samestep.common.techniques import Techniques

_ERROR_BYTES = 2048
_OF_RUNS = ("config.json", "result.json", "error.json")
"""A directory with any of these files is a run directory."""
COMPARISON = "compare.toml"
"""A directory with this file is that of a comparison."""
IMPORTS = "imports.json"
"""The file of a description that says what the worker imported and set while it made it."""
DESCRIBE = "describe.json"
"""The request for a description of the user's model."""
ANSWERED = "answered"
"""The file by which a process shows that it did everything it was asked for, and did not just end."""
MODEL = "model"
"""The folder of the description in a run directory."""


def refuse_taken(directory: Path) -> None:
    """Refuses a directory whose contents would be overwritten, or mistaken for ours.

    Raises:
        ConfigError: The directory holds something, or cannot be written.
    """
    refuse_run(directory)
    try:
        found = sorted(os.listdir(directory)) if directory.is_dir() else []
    except OSError as error:
        raise ConfigError(f"--out {directory} cannot be read ({error.strerror}); name another directory.") from None
    if COMPARISON in found:
        raise ConfigError(
            f"--out {directory} already holds a comparison; continue it with --resume {directory}, or name another directory."
        )
    if found:
        raise ConfigError(
            f"--out {directory} is not empty: it holds {name_some(found, 1)}; name a new or an empty directory."
        )


def refuse_run(directory: Path) -> None:
    """Refuses a directory that already holds a run, or that cannot hold one.

    Raises:
        ConfigError: The directory holds a run, or cannot be written.
    """
    try:
        if any(os.path.lexists(directory / name) for name in _OF_RUNS):
            raise ConfigError(
                f"--out {directory} already holds a run; nothing was overwritten: name another directory."
            )
        nearest = next(path for path in (directory, *directory.absolute().parents) if path.exists())
    except OSError as error:
        raise ConfigError(f"--out {directory} cannot be written ({error.strerror}); name another directory.") from None
    if not (nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK)):
        what = "is not a directory" if not nearest.is_dir() else "is not writable"
        raise ConfigError(f"--out {directory} cannot be written ({nearest} {what}); name another directory.")


def write_json(path: Path, value: object) -> None:
    """Writes a file whole or not at all.

    Args:
        path: The file.
        value: The value, made of plain values and dataclasses.
    """
    with replacing(path) as file:
        file.write((json.dumps(value, default=dataclasses.asdict, indent=1) + "\n").encode())


def open_run(directory: Path, config: RunConfig) -> Path:
    """Makes a run directory, for its user alone, with its `config.json` and a reserved `error.json`; returns it.

    Args:
        directory: Where to make it; it must not hold a run yet.
        config: The request that it will hold.
    """
    open_directory(directory)
    reserve_error(directory)
    if config.described is not None and Path(config.described) != directory / MODEL:
        _copy_description(Path(config.described), directory)
    write_config(directory, config)
    return directory


def write_config(directory: Path, config: RunConfig) -> None:
    """Writes the request into a run directory, which already holds the description of the model if there is one.

    Args:
        directory: The run directory.
        config: The request.
    """
    described = None if config.described is None else MODEL  # relative, so that the directory can be moved
    write_json(directory / "config.json", dataclasses.replace(config, described=described))


def _copy_description(source: Path, directory: Path) -> None:
    make_folder(directory / MODEL, directory)
    for each in sorted(source.rglob("*")):  # a folder comes before what is in it
        path = directory / MODEL / each.relative_to(source)
        if each.is_dir():
            make_folder(path, directory)
        else:
            copy_file(each, path, directory)


def read_config(directory: Path) -> RunConfig:
    """Reads the request that a run directory holds.

    Raises:
        ConfigError: The directory holds no request, or one with unknown fields.
    """
    try:
        fields = _fields(RunConfig, "it", read_json(directory / "config.json"))
        fields["techniques"] = Techniques(**_fields(Techniques, "techniques", fields.get("techniques")))
        if fields.get("described") is not None:
            fields["described"] = str(directory / MODEL)
        return RunConfig(**fields)
    except Unreadable as error:
        raise ConfigError(
            f"{directory} holds no readable config.json: {error}; `samestep run --prepare` makes one."
        ) from None


def _fields(owner: type, what: str, values: object) -> dict[str, typing.Any]:  # checked when they are parsed
    """Reads the fields of a dataclass from JSON.

    Args:
        owner: The dataclass.
        what: The name of what holds them, for the message.
        values: The values in the JSON.
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

    If a full disk or the parent's death cuts off the run, the file still says so. A more exact reason overwrites it in place,
    which needs no further room.
    """
    error = {"type": "WorkerFailed", "role": "", "message": f"the run in {directory} was cut off before it ended"}
    with os.fdopen(reopen(directory / "error.json"), "r+") as file:
        file.write(json.dumps(error).ljust(_ERROR_BYTES))
        file.truncate()
    seal(directory, "error.json")


def _place(error: BaseException) -> str:
    """Finds where an error without a message was raised, such as `assert x.ndim == 2`."""
    frames = traceback.extract_tb(error.__traceback__)[-1:]
    return "".join(f"{Path(frame.filename).name}:{frame.lineno} `{frame.line}`" for frame in frames)


def write_error(directory: Path, role: str, error: BaseException, first: bool = True) -> None:
    """Records what stopped the run, for the parent and for later readers of the directory.

    Args:
        directory: The run directory.
        role: The process that the error came from, or "parent".
        error: Any exception; one that is not ours is described by its type and its first line.
        first: Whether to keep an error that a process has already written, since the first one is the cause.
    """
    kind, message = type(error).__name__, str(error)
    if kind not in ERRORS:
        kind, message = "WorkerFailed", f"{kind}: {first_line(error) or _place(error)}"
    values = {"type": kind, "role": role, "message": message}
    if not directory.is_dir() or (directory / "result.json").exists():
        return  # it was removed, or there is nothing to explain
    try:
        with os.fdopen(reopen(directory / "error.json"), "r+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if not (first and read_error(directory)):
                file.write(json.dumps(values).ljust(_ERROR_BYTES))
                file.truncate()
        seal(directory, "error.json")
    except (OSError, SamestepError) as failure:
        print(f"could not write error.json: {failure}", file=sys.stderr)


def read_error(directory: Path) -> tuple[str, SamestepError] | None:
    """Reads the error that a process left in a run directory: its role and the exception; None if there is none."""
    try:
        values = read_json(directory / "error.json")
        role, kind, message = (values[name] for name in ("role", "type", "message"))  # pyrefly: ignore
        return (
            (role, ERRORS[kind](message)) if role and all(isinstance(text, str) for text in (role, message)) else None
        )
    except (Unreadable, KeyError, TypeError):
        return None  # it was removed or damaged


def is_running(run: Path) -> bool:
    """Returns whether a process of a run still holds its lock, which is on a byte of `config.json`."""
    with contextlib.suppress(OSError):
        descriptor = os.open(run / "config.json", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            return is_any_claimed(descriptor)
        finally:
            os.close(descriptor)
    return False
