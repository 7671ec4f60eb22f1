"""Lists the checkpoints of a run: `samestep checkpoints DIR`."""

import datetime
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from samestep.common.errors import ConfigError
from samestep.common.files.access import check_there
from samestep.experiments.cli.ending import run_command
from samestep.experiments.cli.parser import Parser
from samestep.experiments.printing.text import github, size

if TYPE_CHECKING:
    from samestep.common.runtime.checkpoints.committed import Checkpoint, Damaged


def main(arguments: Sequence[str]) -> int:
    """Prints a table, the newest checkpoint first; returns 1 if one is damaged.

    Raises:
        ConfigError: The directory holds none.
    """
    parser = Parser(
        prog="samestep checkpoints", description="List the checkpoints of a run, and say whether they are intact."
    )
    parser.add_argument("directory", metavar="DIR", help="the directory of a run")
    directory = Path(parser.parse_args(arguments).directory)
    from samestep.common.runtime.checkpoints.committed import Damaged, find_checkpoints  # here: --help imports no NumPy

    check_there(directory)
    found = list(find_checkpoints(directory))
    if not found:
        raise ConfigError(f"{directory} holds no checkpoints; `samestep run --save-every 50` saves them.")
    lines = [_damaged(each, directory) if isinstance(each, Damaged) else _whole(each, directory) for each in found]
    print(github(["checkpoint", "step", "attempt", "saved", "size", "intact"], lines))
    return 1 if any(isinstance(each, Damaged) for each in found) else 0


def _damaged(found: "Damaged", directory: Path) -> list[str]:
    return [str(found.path.relative_to(directory)), "", "", "", "", f"no: {found.reason}"]


def _whole(found: "Checkpoint", directory: Path) -> list[str]:
    name = str(found.path.relative_to(directory))
    moment = datetime.datetime.fromtimestamp(os.path.getmtime(found.path)).strftime("%Y-%m-%d %H:%M:%S")
    return [name, str(found.commit.step), str(found.commit.attempt), moment, size(found.bytes), "yes"]


if __name__ == "__main__":
    run_command(main)
