"""Proves which examples a run trained on: `samestep ledger --examples DIR`."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from samestep.common.errors import ConfigError, ParityFailed
from samestep.common.files.access import check_there
from samestep.common.run import parse
from samestep.common.runtime.directory import read_config
from samestep.common.steps.log import read_log
from samestep.experiments.cli.ending import run_command
from samestep.experiments.cli.parser import Parser
from samestep.experiments.printing.text import github

if TYPE_CHECKING:
    from samestep.common.judging.examples_ledger import Attempted


def main(arguments: Sequence[str]) -> int:
    """Prints what each attempt at a run gathered, and whether every example of every step was gathered once.

    Raises:
        ConfigError: The directory holds no ledger.
        ParityFailed: An example was lost, gathered twice, or replaced by another one.
    """
    parser = Parser(prog="samestep ledger", description="Prove that a run lost no example, and took none twice.")
    parser.examples = ("samestep ledger --examples runs/one",)
    parser.add_argument("--examples", metavar="DIR", required=True, help="the directory of a run or of a record")
    directory = Path(parser.parse_args(arguments).examples)
    from samestep.common.judging.examples_ledger import find_gap, kept  # here: --help imports no NumPy
    from samestep.common.runtime.checkpoints.ledger_file import read_entries
    from samestep.common.steps.record import rank_files

    check_there(directory)
    if os.path.isdir(directory) and rank_files(directory):
        from samestep.experiments.recording.facts import facts_of  # here: a run needs none of it

        print("\n".join(facts_of(directory)))
        return 0
    if not os.path.lexists(directory / "config.json"):
        raise ConfigError(f"--examples {directory}: it holds neither a run nor a record; name the directory of one.")
    run = parse(read_config(directory))
    attempts = kept([(each.attempt, each.role, each.gathered) for each in read_entries(directory)])
    log = read_log(directory)
    lines = [_line(each, run.batch_size) for each in attempts]
    print(github(["attempt", "processes", "steps that count", "examples"], lines))
    end = run.steps if os.path.lexists(directory / "result.json") else max(each.end for each in attempts)
    if gap := find_gap(attempts, run.workload.data.num_examples(), run.batch_size, run.seed, end):
        raise ParityFailed(f"{directory}: {gap}.")
    first, again = attempts[0].first, log.lost_steps
    taken = f" Steps that were lost and repeated: {again}." if again else ""
    in_all = f"{(end - first) * run.batch_size:,} in all"
    print(f"\nEvery example of steps {first} to {end - 1} was gathered once: {in_all}.{taken}")
    return 0


def _line(attempted: "Attempted", size: int) -> list[str]:
    first, end = attempted.first, attempted.end
    return [str(attempted.number), str(attempted.num_processes), f"{first} to {end - 1}", f"{(end - first) * size:,}"]


if __name__ == "__main__":
    run_command(main)
