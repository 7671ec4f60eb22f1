"""Replays runs into the trackers that people have: `samestep export RUNS... --to tensorboard`."""

import importlib
import sys
from collections.abc import Sequence
from pathlib import Path

from samestep.common.errors import ConfigError, unknown
from samestep.experiments.cli.arguments import run_command
from samestep.experiments.cli.parser import Parser

TRACKERS = {"tensorboard": "tensorboard", "mlflow": "mlruns"}
"""Tracker -> the folder that it looks into by itself."""
_DESCRIPTION = """Replay finished runs into a tracker of experiments: settings, the loss of every step, speed by window, and what
came of them. Exit code: 2 if there is no run, 3 if the tracker is not installed; 1 if a run could not be read; 0 otherwise."""


def main(arguments: Sequence[str]) -> int:
    """Writes every run that can be read; returns 1 if one could not.

    Raises:
        ConfigError: There is no run, no such tracker, or its folder cannot be written.
        Unavailable: The tracker is not installed.
    """
    parser = Parser(prog="samestep export", allow_abbrev=False, description=_DESCRIPTION)
    parser.add_argument("runs", nargs="+", metavar="RUNS", help="directories of runs, or that hold some")
    parser.add_argument("--to", required=True, metavar="TRACKER", help=f"one of {', '.join(TRACKERS)}")
    where = "folder to write; for mlflow also the URI of a server (default: tensorboard or mlruns)"
    parser.add_argument("-o", "--output", metavar="FOLDER", help=where)
    given = parser.parse_args(arguments)
    if given.to not in TRACKERS:
        raise unknown("tracker", given.to, TRACKERS)
    from samestep.experiments.exporting.replay import find_runs, read_replay  # here: --help imports no NumPy

    write = importlib.import_module(f"samestep.experiments.exporting.to_{given.to}").write
    target = given.output or TRACKERS[given.to]
    failed = 0
    for name, directory in find_runs([Path(path) for path in given.runs]).items():
        try:
            replay = read_replay(name, directory)
        except ConfigError as error:
            failed += 1
            print(f"not exported: {error}", file=sys.stderr)
            continue
        try:
            print(write(replay, target))
        except OSError as error:
            raise ConfigError(f"-o {target} cannot be written ({error.strerror}); name another folder.") from None
    return 1 if failed else 0


if __name__ == "__main__":
    run_command(main)
