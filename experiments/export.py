"""Replay finished runs into an experiment tracker: settings, the loss of every step, the speed of each window, and the outcome.

With --format, write the state of a checkpoint or of a finished run in a format that other programs read. Exit code: 2 if there
is no run; 3 if the tracker or framework is not installed; 1 if a run could not be read; 0 otherwise.
"""

import importlib
import sys
from collections.abc import Sequence
from pathlib import Path

from samestep.common.errors import ConfigError
from samestep.common.files.output_file import check_named
from samestep.common.frameworks import conventions
from samestep.common.workload.declaration import BUILDERS
from samestep.experiments.cli.ending import run_command
from samestep.experiments.cli.parser import Parser

TRACKERS = {"tensorboard": "tensorboard", "mlflow": "mlruns"}
"""Tracker -> its default folder."""
FORMATS = {"safetensors": ""} | {each: name for name in BUILDERS for each in conventions(name).formats}
"""Format -> the framework that writes it; "" if none is needed."""


def main(arguments: Sequence[str]) -> int:
    """Writes every run that can be read; returns 1 if one could not.

    Raises:
        ConfigError: There is no run or no such tracker, or its folder cannot be written.
        Unavailable: The tracker is not installed.
    """
    given = _parser().parse_args(arguments)
    check_named(given.output or "")
    if given.format is not None:
        return _export_state(given.runs, given.format, given.output)
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


def _parser() -> Parser:
    parser = Parser(prog="samestep export", description=__doc__)
    parser.examples = (
        "samestep export runs/* --to tensorboard",
        "samestep export runs/one --format safetensors -o weights",
    )
    parser.elsewhere = {
        **{each: f"It is the format of a state: --format {each}." for each in FORMATS},
        **{each: f"It is a tracker: --to {each}." for each in TRACKERS},
    }
    parser.add_argument("runs", nargs="+", metavar="RUNS", help="directories of runs, or directories that contain some")
    ways = parser.add_mutually_exclusive_group(required=True)
    ways.add_argument("--to", choices=TRACKERS, metavar="TRACKER", help=f"one of {', '.join(TRACKERS)}")
    ways.add_argument("--format", choices=FORMATS, metavar="FORMAT", help=f"one of {', '.join(FORMATS)}")
    where = (
        "folder to write; for mlflow also the URI of a server (default: tensorboard, mlruns, or the name of the format)"
    )
    parser.add_argument("-o", "--output", metavar="FOLDER", help=where)
    return parser


def _export_state(directories: Sequence[str], kind: str, output: str | None) -> int:
    """Writes a state in a format that other programs read."""
    if len(directories) > 1:
        raise ConfigError(
            f"--format takes one directory, and {len(directories)} are named; export one after the other."
        )
    from samestep.experiments.exporting.states import export_state  # here: --help imports no NumPy

    target = Path(output or kind)
    try:
        print(export_state(Path(directories[0]), FORMATS[kind], target))
    except OSError as error:
        raise ConfigError(f"-o {target} cannot be written ({error.strerror}); name another folder.") from None
    return 0


if __name__ == "__main__":
    run_command(main)
