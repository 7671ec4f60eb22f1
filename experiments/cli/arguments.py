"""The request that a command line makes of a cell and of the flags beside it."""

import dataclasses
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NoReturn

from samestep.common.cell import Cell
from samestep.common.errors import ConfigError
from samestep.common.flags import Scalar, flags, read_fields, spell_flag
from samestep.common.request import RunConfig
from samestep.common.techniques import Techniques
from samestep.experiments.cli.ending import check_environment, report_errors

if TYPE_CHECKING:
    from samestep.common.runtime.parent.elsewhere import Elsewhere
    from samestep.experiments.submitting.targets import Target


def read_request(cell: Cell, given: Mapping[str, Scalar]) -> RunConfig:
    """Makes a request of a cell and of what was given beside it.

    Args:
        cell: What is run.
        given: Fields of RunConfig, of Techniques, and options of the strategy.

    Raises:
        ConfigError: Something is set in both, or there is no such option or value.
    """
    for name, _ in cell.settings:
        if name in given:
            raise ConfigError(f"{cell} and {spell_flag(name)} both set {name}; give it once.")
    own = {name: value for name, value in given.items() if name not in {**flags(RunConfig), **flags(Techniques)}}
    base = dataclasses.replace(read_fields(RunConfig, given), techniques=read_fields(Techniques, given))
    return cell.apply_to(base, own)


def take_target(arguments: Sequence[str], flag: str) -> tuple[Sequence[str], "Target | None"]:
    """Takes a flag that names an engine out of a command line, as `split_target` does where it is there.

    Args:
        arguments: Without the program.
        flag: `--for` or `--on`.

    Raises:
        ConfigError: The flag is there twice, or names nothing.
    """
    if not any(word.partition("=")[0] == flag for word in arguments):
        return arguments, None
    from samestep.experiments.submitting.targets import split_target  # here: few commands start anything elsewhere

    return split_target(arguments, flag)


def open_engine(target: "Target") -> "Elsewhere":
    """Returns what executes runs under the engine that a command line names.

    Raises:
        ConfigError: samestep starts no runs there.
    """
    from samestep.experiments.submitting.jobs import elsewhere

    return elsewhere(target)


def run_command(command: Callable[[Sequence[str]], int], arguments: Sequence[str] | None = None) -> NoReturn:
    """Runs a command and exits; our own errors become one line and their exit code.

    Args:
        command: Takes the arguments, returns the exit code.
        arguments: The process's own, unless given.
    """
    # The oracle's products are small: a second thread would only wait for the first, and on a busy machine for long. NumPy
    # is not imported yet, and processes that train are told their number of threads.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    with report_errors() as code:
        check_environment()
        code[0] = command(sys.argv[1:] if arguments is None else arguments)
    sys.exit(code[0])
