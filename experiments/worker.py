"""Run one process of a prepared run: `samestep worker DIR`, started by torchrun, by a scheduler or by hand."""

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from samestep.experiments.cli.ending import SIGNALS, run_command
from samestep.experiments.cli.parser import Parser

if TYPE_CHECKING:
    from samestep.common.request import Launch
    from samestep.common.strategy import Run


def main(arguments: Sequence[str]) -> NoReturn:
    """Does this process's part of the run, then ends the process; rank 0 also judges the run and writes the result."""
    parser = Parser(prog="samestep worker", description=__doc__)
    parser.add_argument("directory", metavar="DIR", help="the directory that `samestep run --prepare` wrote")
    directory = parser.parse_args(arguments).directory
    for number in {*SIGNALS} - {signal.SIGINT}:  # a worker waits inside its framework, where Python runs no handler
        signal.signal(number, signal.SIG_DFL)
    from samestep.common.runtime.worker import worker  # here: --help imports no NumPy

    code = worker.main([directory], _finish)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # torch and TensorFlow both crash or hang now and then in their own teardown


def _finish(directory: Path, run: "Run", launch: "Launch") -> None:
    """Judges a run on rank 0, and says what came of it.

    Args:
        directory: The run directory.
        run: The run.
        launch: How it was prepared.

    Raises:
        ParityFailed: The run did not take the same step.
    """
    from samestep.common.runtime.parent.outside_launch import finish_alone  # here, like those of `main`
    from samestep.common.runtime.records import load_result
    from samestep.experiments.printing.tables import verdict

    finish_alone(directory, run, launch)
    print(f"{verdict([load_result(directory)])}\nRun: {directory}")


if __name__ == "__main__":
    run_command(main)
