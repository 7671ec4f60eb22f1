"""Lists the checkpoints of a run: `samestep checkpoints DIR`."""

import datetime
import os
from collections.abc import Sequence
from pathlib import Path

from samestep.common.errors import ConfigError
from samestep.common.runtime.checkpoints.committed import Checkpoint, Damaged, find_checkpoints
from samestep.experiments.cli.arguments import run_command
from samestep.experiments.cli.parser import Parser
from samestep.experiments.printing.text import github, size


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
    found = list(find_checkpoints(directory))
    if not found:
        raise ConfigError(f"{directory} holds no checkpoints; `samestep run --save-every 50` saves them.")
    print(
        github(["checkpoint", "step", "attempt", "saved", "size", "whole"], [_line(each, directory) for each in found])
    )
    return 1 if any(isinstance(each, Damaged) for each in found) else 0


def _line(found: Checkpoint | Damaged, directory: Path) -> list[str]:
    name = str(found.path.relative_to(directory))
    if isinstance(found, Damaged):
        return [name, "", "", "", "", f"no: {found.reason}"]
    moment = datetime.datetime.fromtimestamp(os.path.getmtime(found.path)).strftime("%Y-%m-%d %H:%M:%S")
    return [name, str(found.commit.step), str(found.commit.attempt), moment, size(found.bytes), "yes"]


if __name__ == "__main__":
    run_command(main)
