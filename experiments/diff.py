"""Says whether two recorded scripts took the same steps, and where and why they first differ: `samestep diff A B`."""

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from samestep.common.errors import ConfigError
from samestep.experiments.cli.arguments import run_command
from samestep.experiments.cli.parser import Parser, add_format
from samestep.experiments.printing.formats import check_format, write

if TYPE_CHECKING:
    from samestep.experiments.recording.reruns import Reruns

_ABOUT = """Compare two records that `samestep record` wrote, or record two commands and compare them: the data, the
hyper-parameters, the initial weights, then loss, gradients and update of every step. What rounding makes is measured: A's command
is run again a few times, for its first steps, from weights that are moved in their last bit; those reruns are kept in A. Exit
code: 0 if the steps are the same, rounding amplified or not; 4 if they are not; 3 if these records cannot tell: then the command
that would tell is printed; 1 if a command failed; 2 if the request is wrong."""
_SIDE = "the directory of a record, or a command in quotes, which is recorded first into runs/"
_FLOAT64 = "run both commands again in float64 and compare those runs: rounding has no part in what is left"
_WEIGHTS = "start B from the initial weights of A; the only choice is A"
_STEPS = "how many steps the perturbed reruns take, at most (default: 20)"
MOST_STEPS = 10**6


def main(arguments: Sequence[str]) -> int:
    """Compares and prints; returns the exit code of the verdict.

    Raises:
        SamestepError: A record cannot be read, or a command failed.
    """
    parser = Parser(prog="samestep diff", description=_ABOUT, allow_abbrev=False)
    parser.add_argument("a", metavar="A", help=_SIDE)
    parser.add_argument("b", metavar="B", help="likewise")
    parser.add_argument("--float64", action="store_true", help=_FLOAT64)
    parser.add_argument("--weights-from", choices=["A"], help=_WEIGHTS)
    parser.add_argument("--steps", type=int, default=20, metavar="N", help=_STEPS)
    add_format(parser)
    given = parser.parse_args(arguments)
    check_format(given.format)
    if not 1 <= given.steps <= MOST_STEPS:
        raise ConfigError(f"--steps {given.steps} is not from 1 to {MOST_STEPS}.")
    sides = [_command(given.a), _command(given.b)]
    from samestep.experiments.printing.diff_report import annotation, diff_document  # here: --help imports no NumPy
    from samestep.experiments.recording.diffing import diff, in_float64

    a = _side("A", given.a, sides[0], None)
    b = _side("B", given.b, sides[1], a if given.weights_from else None)
    if given.float64:
        a, b = in_float64((a, b))
    found = diff(a, b, given.steps)
    print(write(diff_document(found, arguments), given.format), flush=True)
    if os.environ.get("GITHUB_ACTIONS") == "true" and (line := annotation(found)):
        print(line, file=sys.stderr)
    return found.verdict.exit_code


def _command(argument: str) -> list[str] | None:
    """Returns the words of a command; None if the argument is a directory.

    Raises:
        ConfigError: It is neither.
    """
    if Path(argument).is_dir():
        return None
    try:
        words = shlex.split(argument)
    except ValueError as error:
        raise ConfigError(f"'{argument}' is not a command: {error}.") from None
    if len(words) < 2:
        raise ConfigError(f"'{argument}' is neither a record nor a command; `samestep record` writes a record.")
    return words


def _side(who: str, argument: str, command: list[str] | None, weights_of: "Reruns | None") -> "Reruns":
    """Reads a record, or makes one of a command."""
    from samestep.common.steps.joining import read_run
    from samestep.experiments.recording.reruns import Reruns, count_steps, record_argument
    from samestep.experiments.recording.start import check_command, default_directory

    weights = None if weights_of is None else weights_of.weights()
    if command is None:
        side = Reruns(read_run(Path(argument)), Path(argument).resolve(), who)
        if weights is None:
            return side
        if why := side.why_not():
            raise ConfigError(f"{who} cannot be run again from A's weights: {why}.")
        run = side.started_from(weights, count_steps(side.run))
        return Reruns(run, Path(run.name), who)
    check_command(command)
    out = default_directory(command).absolute()
    print(f"samestep: {who} is recorded into {out} ...", file=sys.stderr, flush=True)
    return Reruns(record_argument(command, out, weights), out, who)


if __name__ == "__main__":
    run_command(main)
