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
"""A function that runs and records a command, with the parameters of `run_again`: the words of the command, how to record it,
where to start it, and whether to discard its output."""


def run_again(command: Sequence[str], options: RecordOptions, directory: Path, is_quiet: bool) -> None:
    """Runs a command and records it.

    Args:
        command: The words of the command.
        options: How and into which directory it is recorded.
        directory: The directory in which it is started.
        is_quiet: Whether its output is discarded; otherwise it goes to stderr.

    Raises:
        SamestepError: The command failed.
    """
    ended = record_command(command, options, subprocess.DEVNULL if is_quiet else sys.stderr.fileno(), directory)
    if options.stop_after != 0 and ended.why_nothing:
        raise WorkerFailed(ended.why_nothing) if ended.exit_code else Unavailable(ended.why_nothing)
    if ended.exit_code:
        why = ended.notes[0] if ended.notes else f"'{' '.join(command)}' ended with exit code {ended.exit_code}"
        kept = "." if is_quiet else f"; its record as far as it got: {options.out}"
        raise WorkerFailed(f"{why.removesuffix('.')}{kept}")


def why_not_again(header: RecordHeader) -> str:
    """Returns why the command of a record cannot be run again; "" if it can.

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
    """Returns the directory in which to rerun the command of a record: its old one, or the current one if its script is here.

    Args:
        header: The header of the record.
    """
    scripts = [word for word in header.command if word.endswith(".py")][:1]
    places = (Path(header.directory), Path.cwd())
    return next((each for each in places if each.is_dir() and all((each / s).is_file() for s in scripts)), None)


def tell_command(command: Sequence[str], place: Path, record: Path) -> None:
    """Prints the command that is about to run, since the author of the record chose it.

    Args:
        command: The words of the command.
        place: The directory in which it is started.
        record: The directory of the record.
    """
    said = printable(f"runs '{shlex.join(command)}' in {place}, which {record / rank_file(0)} names")
    print(f"samestep: {said}", file=sys.stderr, flush=True)


def record_argument(command: Sequence[str], out: Path, weights: Path | None, is_quiet: bool = False) -> RecordedRun:
    """Records a command that was given in place of a record.

    Args:
        command: The words of the command.
        out: The directory of the record.
        weights: The .npz file with its initial weights; None keeps its own.
        is_quiet: Whether its output is discarded; otherwise it goes to stderr.

    Raises:
        SamestepError: The command failed.
    """
    options = RecordOptions(str(out), weights_from=None if weights is None else str(weights))
    run_again(command, options, Path.cwd(), is_quiet)
    return read_run(out)
