"""Records what a training script does, without a changed line: `samestep record -- python train.py`."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from samestep.common.errors import ConfigError, Unavailable
from samestep.common.flags import spell_flag
from samestep.experiments.cli.ending import run_command
from samestep.experiments.cli.parser import Parser

_ABOUT = (
    "Run a training script and record every step: its data, loss, hyper-parameters, gradients and weights, as "
    "hashes and projections. The script is not changed, and its output and exit code stay as they are. `samestep "
    "diff` compares two records."
)


def main(arguments: Sequence[str]) -> int:
    """Records a command; returns its exit code.

    Raises:
        ConfigError: There is no command, or the directory is taken.
        Unavailable: Nothing could be recorded.
    """
    parser = Parser(prog="samestep record", description=_ABOUT)
    parser.usage = "samestep record [OPTIONS] -- COMMAND"
    parser.add_argument("--out", metavar="DIR", help="an empty directory for the record (default: a new one in runs/)")
    parser.add_argument(
        "--every", type=int, default=1, metavar="N", help="record tensors at every N-th step after the first 10"
    )
    parser.add_argument("--float64", action="store_true", help="run the script in float64")
    parser.add_argument("--perturb", type=int, metavar="SEED", help="perturb the initial weights in their last bit")
    parser.add_argument("--stop-after", type=int, metavar="STEPS", help="end the script after this many steps")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND", help="such as: python train.py")
    given = vars(parser.parse_args(arguments))
    command = given.pop("command")
    command = command[1:] if command[:1] == ["--"] else command
    for name in ("every", "stop_after"):
        if given[name] is not None and given[name] < 1:
            raise ConfigError(f"{spell_flag(name)} is {given[name]}; give a whole number from 1 on.")
    from samestep.common.steps.recording import RecordOptions  # here: --help imports no NumPy
    from samestep.experiments.recording.facts import facts_of
    from samestep.experiments.recording.start import check_command, default_directory, record_command

    check_command(command)
    out = Path(given.pop("out") or default_directory(command))
    ended = record_command(command, RecordOptions(str(out), **given))
    lines = [*ended.notes, *facts_of(out)]
    if ended.why_nothing:
        if not ended.exit_code:
            raise Unavailable(ended.why_nothing)
        lines = [ended.why_nothing]
    for line in lines:
        print(f"samestep: {line}", file=sys.stderr)
    return ended.exit_code


if __name__ == "__main__":
    run_command(main)
