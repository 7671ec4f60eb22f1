"""The two sides of a diff: each is a record, or a command that is recorded first."""

import dataclasses
import os
import re
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from samestep.common.errors import ConfigError, Unavailable, percent
from samestep.common.mistakes.mistake import few
from samestep.common.steps.joining import read_run
from samestep.common.steps.recorded_run import OF_STAGE, RecordedRun
from samestep.experiments.printing.progress import spell_seconds
from samestep.experiments.recording.record_commands import record_argument
from samestep.experiments.recording.rerun_folder import count_steps
from samestep.experiments.recording.reruns import Reruns
from samestep.experiments.recording.start import check_command, default_directory

Argument = str | os.PathLike[str]
"""The directory of a record, or a command in one string."""
_OPERATORS = ("|", "||", "&", "&&", ";", "<", ">", ">>", "2>", "2>&1", "&>")
"""Words that only a shell interprets; a script would get them as arguments, which is intended only if they are quoted."""
_QUOTED = re.compile(r"""\\.|'[^']*'|"(?:\\.|[^"\\])*\"""", re.DOTALL)
_FIRST_SECONDS, _SECONDS = 3.0, 10.0
"""The seconds before the first line on the progress of reading a record, and between later ones."""


def read_sides(a: Argument, b: Argument, takes_weights: bool = False, is_quiet: bool = False) -> tuple[Reruns, Reruns]:
    """Reads two records, or makes them.

    Args:
        a: The first argument.
        b: The second argument.
        takes_weights: Whether B starts from A's initial weights.
        is_quiet: Whether nothing is shown while commands run.

    Raises:
        SamestepError: A record cannot be read, or a command failed.
    """
    commands = [_command(each) for each in (a, b)]  # both before anything runs
    one = _side("A", a, commands[0], None, is_quiet)
    _refuse_parts(one, one.run.elsewhere if takes_weights else ())
    return one, _side("B", b, commands[1], one.initial_weights() if takes_weights else None, is_quiet)


def _refuse_parts(side: Reruns, names: Sequence[str]) -> None:
    """Refuses to take the weights of one rank if other ranks need different ones.

    Raises:
        ConfigError: There are names of parameters that other ranks hold.
    """
    if names:
        raise ConfigError(
            f"--weights-from takes the weights of one rank, and those of {side.name} hold different parts of their model "
            f"({few(names)}); set the same seed in both scripts, or have both load one checkpoint."
        )


def _command(argument: Argument) -> list[str] | None:
    """Returns the words of a command; None if the argument is a directory.

    Raises:
        ConfigError: It is neither a directory nor a command.
    """
    if os.path.isdir(argument):  # Path.is_dir raises on a command that is too long for a name
        return None
    text = os.fspath(argument)
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise ConfigError(f"'{text}' is not a command: {error}; write it as in \"python train.py\".") from None
    if len(words) < 2:
        guess = f': did you mean "python {text}"?' * text.endswith(".py")
        raise ConfigError(
            f"'{text}' is neither a record nor a command{guess or '; `samestep record` writes a record.'}"
        )
    check_command(words)
    if operators := [each for each in _QUOTED.sub("_", text).split() if each in _OPERATORS]:
        raise ConfigError(
            f"'{text}' has {operators[0]}, and no shell reads it; give that to one: bash -c {shlex.quote(text)}."
        )
    return words


def _side(who: str, argument: Argument, command: Sequence[str] | None, weights: Path | None, is_quiet: bool) -> Reruns:
    """Reads a record, or records a command."""
    if command is None:
        watch = _ReadingProgress(who) if who == "A" and not is_quiet else None
        side = Reruns(read_run(Path(argument), watch), Path(argument).resolve(), who, is_quiet=is_quiet)
        if weights is None:
            return side
        _refuse_parts(side, _of_stages(side.run))
        try:
            run = side.started_from(weights, count_steps(side.run))
        except Unavailable as error:
            raise ConfigError(f"{who} cannot be run again from A's weights: {error}.") from None
        return dataclasses.replace(side, run=run, directory=Path(run.name), weights=str(weights))
    out = default_directory(command).absolute()
    if not is_quiet:
        print(f"samestep: {who} is recorded into {out} ...", file=sys.stderr, flush=True)
    run = record_argument(command, out, weights, is_quiet)
    made = Reruns(run, out, who, is_quiet=is_quiet, weights=str(weights or ""), repeated=sys.maxsize, is_told=True)
    _refuse_parts(made, _of_stages(run) if weights else ())
    return made


def _of_stages(run: RecordedRun) -> list[str]:
    """Returns the parameters of later stages whose names A may use for other parameters, which would be loaded into them."""
    return [name for name in run.elsewhere if OF_STAGE.match(name)]


class _ReadingProgress:
    """Prints a line every few seconds while the steps of a record are read."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._began = time.monotonic()
        self._next = self._began + _FIRST_SECONDS

    def __call__(self, number: int, share: float) -> None:
        """Prints a line if the last one is old enough.

        Args:
            number: The number of the step that is read, which begins with -1.
            share: The share of the record that was read.
        """
        now = time.monotonic()
        if number < 0:
            self._began, self._next = now, now + _FIRST_SECONDS
        elif now >= self._next:
            self._next = now + _SECONDS
            left = spell_seconds((now - self._began) * (1 - share) / share)
            line = (
                f"samestep: {self._name} is read and compared: step {number:,}, {percent(share)}, about {left} left ..."
            )
            print(line, file=sys.stderr, flush=True)
