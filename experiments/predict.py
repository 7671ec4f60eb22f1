"""Predicts a step without running anything: `samestep predict --strategy torch:fsdp --workload prose-gpt --mesh shard=8`."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

from samestep.common.cell import Cell
from samestep.common.errors import ConfigError
from samestep.common.flags import Scalar, flag, flags, read_fields, spell_flag
from samestep.common.request import RunConfig
from samestep.common.techniques import Techniques
from samestep.common.workload.published import PUBLISHED
from samestep.experiments.advising.prediction import Assumptions
from samestep.experiments.cli.command_line import named_cell, parse_beside, read_request
from samestep.experiments.cli.ending import run_command
from samestep.experiments.cli.parser import Parser
from samestep.experiments.printing.formats import FORMATS, Document, write

PREDICTED = ("workload", "model", "mesh", "batch_size", "optimizer", "dtype", "batch_norm", "data")
"""The fields of a request on which a prediction depends; `Assumptions` has the rest."""
_ABOUT = (
    "Predict the memory and the traffic of a step, without running anything, for one strategy or for every one that can take "
    f"the request. Besides the workloads that can be run, there are published models: {', '.join(PUBLISHED)}."
)


@dataclasses.dataclass(frozen=True)
class _Command:
    """The flags that change no prediction: which rows are predicted, and how the result is printed."""

    strategy: str | None = flag(None, "a strategy, as in torch:fsdp (default: every one that can take the request)")
    validate: str | None = flag(
        None,
        "compare predictions with measurements that others published, and print the errors",
        choices=("vtrain", "torchtitan", "megatron", "llm-foundry", "llm-foundry-a100", "megatron-a100"),
    )
    rows: str | None = flag(
        None, "with --validate vtrain: a CSV file with the same columns, whose rows are predicted instead"
    )
    observe: bool = flag(
        False,
        "also take one real step of the strategy, as rank 0 among ranks that do not exist, and measure what it sends and holds",
    )
    format: str = flag("github", "github is for people, the others are for programs", choices=FORMATS)


_GROUPS = (
    ("prediction", RunConfig, tuple(name for name in flags(RunConfig) if name not in PREDICTED)),
    ("assumptions", Assumptions, ()),
    ("techniques", Techniques, ()),
    ("command", _Command, ()),
)


def main(arguments: Sequence[str]) -> int:
    """Predicts and prints; returns 0.

    Raises:
        ConfigError: The request is wrong.
    """
    cell = named_cell(arguments, "samestep predict", _GROUPS)
    parser = Parser(prog="samestep predict", description=_ABOUT)
    parser.examples = (
        "samestep predict torch:fsdp --workload gpt3-175b --mesh shard=64",
        "samestep predict --workload prose-gpt --devices 8 --device-memory 80GiB",
        "samestep predict torch:fsdp --mesh shard=64 --batch-size 64 --observe",
    )
    given = parse_beside(cell, arguments, parser, _GROUPS)
    command = read_fields(_Command, given)
    form = command.format
    if command.validate is not None or command.rows is not None:
        print(write(_validation(cell, command, given), form))
        return 0
    from samestep.experiments.advising.forecast import forecast  # here: --help does without

    print(write(forecast(cell, *read(cell, given), command.observe).document(), form))
    return 0


def _validation(cell: Cell | None, command: _Command, given: Mapping[str, Scalar]) -> Document:
    """Compares predictions with published measurements.

    Raises:
        ConfigError: Something else was requested as well, or `--rows` was given without `--validate vtrain`.
    """
    strangers = [spell_flag(name) for name in given if name not in flags(_Command)]
    if strangers := [str(cell)] * bool(cell) + strangers:
        raise ConfigError(f"--validate predicts what others measured; leave out {strangers[0]}.")
    if command.validate is None or (command.rows is not None and command.validate != "vtrain"):
        raise ConfigError(f"--rows {command.rows} needs --validate vtrain.")
    from samestep.experiments.advising.validate import VALIDATIONS, document  # here: --help does without

    return document(VALIDATIONS[command.validate](Path(command.rows) if command.rows else None))


def read(cell: Cell | None, given: Mapping[str, Scalar]) -> tuple[RunConfig, Assumptions]:
    """Makes a request from a cell and the other arguments.

    Args:
        cell: The cell; None stands for every strategy, which have no options in common.
        given: Fields of RunConfig, Assumptions and Techniques, and options of the strategy.

    Raises:
        ConfigError: A value is wrong, or something is set twice.
    """
    assumed = read_fields(Assumptions, given)
    rest = {name: value for name, value in given.items() if name not in {**flags(Assumptions), **flags(_Command)}}
    if cell is not None:
        return read_request(cell, rest), assumed
    for name in rest.keys() - {**flags(RunConfig), **flags(Techniques)}.keys():
        raise ConfigError(f"{spell_flag(name)} is an option of some strategies; name one.")
    return dataclasses.replace(read_fields(RunConfig, rest), techniques=read_fields(Techniques, rest)), assumed


if __name__ == "__main__":
    run_command(main)
