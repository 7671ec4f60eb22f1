"""Runs a command and records it: an argument of a diff that is not a record, or the command of a record again."""

import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from samestep.common.errors import Unavailable, WorkerFailed, printable
from samestep.common.steps.joining import read_run
from samestep.common.steps.record import RecordHeader, rank_file
from samestep.common.steps.recorded_run import RecordedRun
from samestep.common.steps.recording import RecordOptions
from samestep.experiments.recording.start import record_command

_PASSED = "/dev/fd/", "/proc/self/fd/"
"""The folders of the files that a shell passes, as in `python <(generate)`."""


RunCommand = Callable[[Sequence[str], RecordOptions, Path, bool], None]
"""(words of a command, how to record it, where to start it, whether to discard its output) -> None: runs and records it, as
`run_again` does."""


def run_again(command: Sequence[str], options: RecordOptions, directory: Path, is_quiet: bool) -> None:
    """Runs a command and records it.

    Args:
        command: Its words.
        options: How it is recorded, and into which directory.
        directory: Where it is started.
        is_quiet: Whether its output is thrown away; else it goes to stderr.

    Raises:
        SamestepError: It failed.
    """
    ended = record_command(command, options, subprocess.DEVNULL if is_quiet else sys.stderr.fileno(), directory)
    if options.stop_after != 0 and ended.why_nothing:
        raise WorkerFailed(ended.why_nothing) if ended.exit_code else Unavailable(ended.why_nothing)
    if ended.exit_code:
        why = ended.notes[0] if ended.notes else f"'{' '.join(command)}' ended with exit code {ended.exit_code}"
        kept = "." if is_quiet else f"; its record as far as it got: {options.out}"
        raise WorkerFailed(f"{why.removesuffix('.')}{kept}")


def why_not_again(header: RecordHeader) -> str:
    """Says why the command of a record cannot be run again; "" if it can.

    Args:
        header: The header of the record.
    """
    command = header.command
    if not command:
        return "the record holds no command"
    if header.is_from_input or any(word.startswith(_PASSED) for word in command):
        return "its program came through standard input or a pipe, and is gone; save it as a file, and record that"
    if shutil.which(command[0]) is None:
        return f"its command {command[0]} is not there"
    return "" if start_of(header) else f"its script is neither in {header.directory} nor here"


def start_of(header: RecordHeader) -> Path | None:
    """Returns where to start the command of a record again: its old directory, or this one if its script is here.

    Args:
        header: The header of the record.
    """
    scripts = [word for word in header.command if word.endswith(".py")][:1]
    places = (Path(header.directory), Path.cwd())
    return next((each for each in places if each.is_dir() and all((each / s).is_file() for s in scripts)), None)


def tell_command(command: Sequence[str], place: Path, record: Path) -> None:
    """Says what is about to run, since whoever wrote a record chose its command.

    Args:
        command: Its words.
        place: Where it is started.
        record: The directory of the record.
    """
    said = printable(f"runs '{shlex.join(command)}' in {place}, which {record / rank_file(0)} names")
    print(f"samestep: {said}", file=sys.stderr, flush=True)


def record_argument(command: Sequence[str], out: Path, weights: Path | None, is_quiet: bool = False) -> RecordedRun:
    """Records a command that is given in the place of a record.

    Args:
        command: Its words.
        out: The directory of the record.
        weights: A .npz file that it starts from; None leaves its own.
        is_quiet: Whether its output is thrown away; else it goes to stderr.

    Raises:
        SamestepError: It failed.
    """
    options = RecordOptions(str(out), weights_from=None if weights is None else str(weights))
    run_again(command, options, Path.cwd(), is_quiet)
    return read_run(out)
