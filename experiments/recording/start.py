"""Starts a command with recording: with a folder in front of PYTHONPATH, and one environment variable."""

import contextlib
import dataclasses
import errno
import importlib
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from samestep.common.errors import ConfigError, Unavailable
from samestep.common.files.locks import sole_user
from samestep.common.files.reading import MOST_BYTES, Unreadable, parse_json
from samestep.common.files.removing import discard
from samestep.common.files.writing import copy_file, create, open_directory
from samestep.common.files.written import LIST
from samestep.common.frameworks import FRAMEWORKS, conventions
from samestep.common.runtime.parent.attempts import UNWRITABLE, first_new, new_directory
from samestep.common.runtime.parent.processes.scratch import make_scratch
from samestep.common.steps.environment import input_file
from samestep.common.steps.record import rank_files
from samestep.common.steps.recording import VARIABLE, RecordOptions
from samestep.common.workload.declaration import BUILDERS
from samestep.experiments.recording.background import BackgroundCommand
from samestep.experiments.recording.foreground import run_in_foreground

_INJECTED = Path(__file__).parent / "injected"
_CLEANED = (
    "something removed the folder of temporary files of `samestep record` while the command ran; Python processes that were "
    "started after that were not recorded."
)
_PACKAGE = Path(__file__).absolute().parents[3]


@dataclasses.dataclass(frozen=True)
class RecordedCommand:
    """The end of a recorded command.

    Attributes:
        exit_code: Its exit code; 128 + N if signal N ended it, as in shells.
        notes: The notes of the recorders.
        why_nothing: Why there is no record (its directory is then removed); "" if there is one.
    """

    exit_code: int
    notes: tuple[str, ...]
    why_nothing: str = ""


def record_command(
    command: Sequence[str], options: RecordOptions, output: int | None = None, directory: Path | None = None
) -> RecordedCommand:
    """Runs a command and records it. Its input, output, error stream and terminal are those of this process.

    Args:
        command: The words of the command.
        options: How to record; the fields `command`, `directory`, `notes`, `package` and `input` are filled in.
        output: A descriptor for its output and errors instead, or `subprocess.DEVNULL`; it then has no input and no terminal.
        directory: The directory in which it is started; by default the current one.

    Raises:
        ConfigError: There is no such command, or the directory of the record is not empty, is used or cannot be written.
    """
    check_command(command)
    with claimed(Path(options.out)) as out:
        try:
            exit_code, said = _recorded(command, dataclasses.replace(options, out=str(out)), output, directory)
        except ConfigError:
            discard(Path(options.out))
            raise
        if why_nothing := _why_nothing(out, exit_code, said):
            discard(Path(options.out))
        return RecordedCommand(exit_code, said.get("note", ()), why_nothing)


def _recorded(
    command: Sequence[str], options: RecordOptions, output: int | None, directory: Path | None
) -> tuple[int, dict[str, tuple[str, ...]]]:
    """Runs a command and records it into a claimed directory; returns its exit code, and the notes by kind."""
    place, given = str(directory or Path.cwd()), input_file() if output is None else ""
    with make_scratch() as scratch:
        os.close(create(notes := Path(scratch, "notes")))
        for name in ("sitecustomize.py", *(["keeping.py"] if options.keep else ())):
            copy_file(_INJECTED / name, Path(scratch, name))
        full = dataclasses.replace(
            options, command=tuple(command), directory=place, notes=str(notes), package=str(_PACKAGE), input=given
        )
        path = os.pathsep.join(filter(None, (scratch, os.environ.get("PYTHONPATH"))))
        environment = os.environ | {"PYTHONPATH": path, VARIABLE: full.to_json()}
        with notes.open("rb") as noted:  # a script may clean the folder of temporary files
            exit_code = _run(command, environment, output, directory)
            lines = [*_lines(noted.read(MOST_BYTES))] + ([] if notes.exists() else [("note", _CLEANED)])
    return exit_code, {kind: tuple(dict.fromkeys(text for each, text in lines if each == kind)) for kind, _ in lines}


def check_command(command: Sequence[str]) -> None:
    """Refuses a command that does not exist.

    Raises:
        ConfigError: The command is empty, or is not found.
    """
    if not command:
        raise ConfigError("no command is given; append it, as in: samestep record -- python train.py")
    if shutil.which(command[0]) is None:
        raise ConfigError(
            f"command '{command[0]}' is not found; name a program, as in: samestep record -- python train.py"
        )


def default_directory(command: Sequence[str]) -> Path:
    """Makes a new directory in runs/, named after the script of a command."""
    scripts = [each for each in command if each.endswith(".py")]
    stem = Path(scripts[0] if scripts else command[0]).stem
    return first_new(lambda: new_directory(stem))


@contextlib.contextmanager
def claimed(out: Path) -> Iterator[Path]:
    """Makes the directory of a record, and keeps other commands out of it; yields its absolute path.

    Args:
        out: The directory.

    Raises:
        ConfigError: It is not empty, is used, or cannot be written.
    """
    prepared(out)
    with sole_user(out, "recorded into", ", or name another directory"):
        yield prepared(out)  # a command that has just ended may have left its record


def prepared(out: Path) -> Path:
    """Makes the directory of a record; returns its absolute path.

    Raises:
        ConfigError: It is not empty, or cannot be written.
    """
    try:
        if out.exists() and (not out.is_dir() or any(each.name != LIST for each in out.iterdir())):
            raise ConfigError(f"--out {out} is not an empty directory; name another one.")
        open_directory(out)
    except OSError as error:
        raise ConfigError(UNWRITABLE.format(out, error.strerror)) from None
    return out.resolve()


def started_here(directory: Path, every: int) -> list[Callable[[], None]]:
    """Starts to record this process; returns the function that ends the record.

    Args:
        directory: The directory of the record.
        every: As in `RecordOptions`.

    Raises:
        Unavailable: No framework is imported yet.
    """
    modules = [f"{FRAMEWORKS[name]}.recording" for name in BUILDERS if conventions(name).followed in sys.modules]
    if not modules:
        raise Unavailable("nothing is there to be recorded; import torch or keras before samestep.record.")
    options = RecordOptions(str(directory), tuple(sys.argv), every=every).to_json()
    return [stop for module in modules if (stop := importlib.import_module(module).install(options))]


def _why_nothing(out: Path, exit_code: int, said: Mapping[str, tuple[str, ...]]) -> str:
    """Returns why there is no record, given the notes of its processes by kind; "" if there is one."""
    if any(each.stat().st_size for each in rank_files(out)):
        return ""
    if "note" in said:
        reason = said["note"][0]
    elif exit_code:
        reason = f"the command ended with exit code {exit_code} before its first step."
    elif "python" not in said:
        reason = (
            "no Python of the command loaded the recorder: it runs none, or runs `python -I`, `-E` or `-S` (leave that out), or "
            "overwrites PYTHONPATH (keep what is in it: PYTHONPATH=src:$PYTHONPATH)."
        )
    elif "framework" not in said:
        reason = (
            "the command imported neither torch nor keras; name one that trains with either, and that neither clears the "
            "environment of its processes nor leaves them behind."
        )
    else:
        reason = _no_step(said["framework"])
    return f"nothing is recorded: {reason}"


def _no_step(followed: Sequence[str]) -> str:
    """Returns a message on what counts as a step, for a script that took none."""
    of = [each for each in map(conventions, BUILDERS) if each.followed in followed]
    steps = "; ".join(f"in {each.name}, {each.steps}" for each in of)
    return f"the command took no step. What counts as one: {steps}. Record a script that trains in one of these ways."


def _lines(noted: bytes) -> Iterator[tuple[str, str]]:
    """Yields the kind and the text of each note."""
    for line in noted.splitlines():
        with contextlib.suppress(Unreadable):  # the note was cut short: no space was left, or its process was killed
            match parse_json(line):
                case [str(kind), str(text)]:
                    yield kind, text


def _run(command: Sequence[str], environment: dict[str, str], output: int | None, directory: Path | None) -> int:
    try:
        if output is None:
            code = run_in_foreground(command, environment, directory)
        else:
            code = BackgroundCommand(command, environment, output, directory).wait()
    except OSError as error:
        is_text = error.errno == errno.ENOEXEC  # a script without a first line that names its interpreter
        hint = "; name the program that runs it before it, as in: python train.py" if is_text else "."
        raise ConfigError(f"command '{command[0]}' cannot be started: {error.strerror}{hint}") from None
    return 128 - code if code < 0 else code
