"""The command line of a run or a prediction, whose flags are only known once the cell that it names is found."""

import argparse
import dataclasses
import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from samestep.common.catalog import catalogue, foreign_option
from samestep.common.cell import Cell
from samestep.common.errors import ConfigError, unknown
from samestep.common.flags import Scalar, flags, read_fields, spell_flag
from samestep.common.request import RunConfig
from samestep.common.techniques import Techniques
from samestep.experiments.cli.parser import Parser, add_flags

if TYPE_CHECKING:
    from samestep.common.runtime.parent.job_executor import JobExecutor
    from samestep.experiments.submitting.targets import Target

Group = tuple[str, type, Sequence[str]]
"""Flags of a command: their title in its help, the dataclass whose fields they are, and the fields that are not its flags."""


class _WordReader(Parser):
    """Finds out which words are values of flags; whether those are valid depends on the strategy."""

    def _check_value(self, action: argparse.Action, value: object) -> None:
        pass


def parse_run(arguments: Sequence[str], program: str, beside: Sequence[Parser] = ()) -> RunConfig:
    """Reads the line of one run: its cell, RunConfig's flags, the techniques', and those of the strategy that is named.

    Args:
        arguments: The command line without the program.
        program: The name of the program, for the help.
        beside: Parsers of further flags, which the help lists as well.

    Raises:
        ConfigError: A flag is unknown, belongs to another strategy, or has an invalid value.
    """
    groups = [("run", RunConfig, ()), ("techniques", Techniques, ())]
    cell = named_cell(arguments, program, groups) or Cell(RunConfig.framework, RunConfig.strategy)
    about = "Train a workload under one strategy and compare its steps with the oracle's."
    parser = Parser(prog=program, description=about, parents=beside)
    parser.examples = (
        f"{program} torch:ddp --devices 2",
        f"{program} tf:mirrored --devices 2 --workload prose-gpt --steps 50",
        f"{program} torch:fsdp --devices 2 --model net.py --data mine.npz",
    )
    return read_request(cell, parse_beside(cell, arguments, parser, groups))


def parse_beside(
    cell: Cell | None, arguments: Sequence[str], parser: Parser, groups: Sequence[Group]
) -> dict[str, Scalar]:
    """Reads the arguments of a command besides the cell that it names.

    Args:
        cell: The cell, whose strategy has options; None has none.
        arguments: The command line without the program.
        parser: A parser with the program's name and description.
        groups: The flags that are valid under any strategy.

    Raises:
        ConfigError: A flag is unknown, or belongs to another strategy.
    """
    verb = parser.prog.rpartition(" ")[2]
    told = f"what to {verb}, in place of --framework and --strategy: torch:ddp or torch:ddp+clip_norm=1"
    parser.add_argument("cell", nargs="?", metavar="CELL", help=told)
    for title, owner, leave_out in groups:
        add_flags(parser, title, owner, leave_out)
    info = cell.info if cell else None
    if cell and info:
        parser.description = textwrap.fill(f"{parser.description} {cell.name}: {info.summary}")
        if flags(info.options):
            add_flags(parser, cell.name, info.options)
    values, foreign = parser.parse_known_intermixed_args(arguments)
    if foreign:
        _named_among_flags(arguments, parser.prog, groups)  # refuses flags that no strategy has
    for word in foreign[:1]:
        name = word[2:].partition("=")[0].replace("-", "_")
        if cell is None or info is None or any(name in leave_out for _, _, leave_out in groups):
            raise ConfigError(
                f"{spell_flag(name)} is not a flag of {parser.prog}{'' if info else ' without a strategy'}; leave it out, or see "
                f"{parser.prog} --help."
            )
        raise foreign_option(cell.framework, info, name)
    return {name: value for name, value in vars(values).items() if name not in ("cell", "framework", "strategy")}


def named_cell(arguments: Sequence[str], program: str, groups: Sequence[Group]) -> Cell | None:
    """Finds the cell that a command's arguments name, before its flags are known.

    Args:
        arguments: The command line without the program.
        program: The program's name, for messages.
        groups: The command's flags that are valid under any strategy.

    Returns:
        The cell, or None if none is named.

    Raises:
        ConfigError: A flag is unknown, or two cells are named.
    """
    is_first = bool(arguments) and not arguments[0].startswith("-")
    if is_first and not any(word.startswith(("--framework", "--strategy")) for word in arguments):
        return Cell.parse(arguments[0], RunConfig.framework)
    return _named_among_flags(arguments, program, groups)


def _named_among_flags(arguments: Sequence[str], program: str, groups: Sequence[Group]) -> Cell | None:
    """Finds a cell anywhere among the flags; the flags of every strategy show which words are values."""
    first = _WordReader(prog=program, add_help=False, conflict_handler="resolve")
    owners = [*(owner for _, owner, _ in groups), *dict.fromkeys(row.options for _, row in catalogue())]
    for owner in owners:
        add_flags(first, "", owner)
    chosen, rest = first.parse_known_args(arguments)
    for word in rest:
        if word.startswith("--") and word != "--help":
            every = [spell_flag(name) for owner in owners for name in flags(owner)]
            named = word.partition("=")[0]
            raise unknown("option", named, dict.fromkeys(every), owner=first.elsewhere.get(named, ""))
        if word.startswith("-") and word not in ("-h", "--help"):
            raise ConfigError(f"'{word}' is not a flag; every flag is written as --name value.")
    named = [word for word in rest if not word.startswith("-")]
    named += [chosen.strategy] if "strategy" in chosen else []
    if len(named) > 1:
        raise ConfigError(f"'{named[0]}' and '{named[1]}' both name what to run; give one of them.")
    framework = getattr(chosen, "framework", None)
    if not named and framework is None:
        return None
    text = (named or [RunConfig.strategy])[0]
    is_complete = framework is None or ":" in text.partition("+")[0]
    cell = Cell.parse(text if is_complete else f"{framework}:{text}", RunConfig.framework)
    if framework not in (None, cell.framework):
        raise ConfigError(f"--framework {framework} disagrees with {text}; leave out --framework.")
    return cell


def read_request(cell: Cell, given: Mapping[str, Scalar]) -> RunConfig:
    """Makes a request from a cell and from the other arguments.

    Args:
        cell: The cell to run.
        given: Fields of RunConfig, of Techniques, and options of the strategy.

    Raises:
        ConfigError: A field is set in both, or there is no such option or value.
    """
    for name, _ in cell.settings:
        if name in given:
            raise ConfigError(f"{cell} and {spell_flag(name)} both set {name}; give it once.")
    own = {name: value for name, value in given.items() if name not in {**flags(RunConfig), **flags(Techniques)}}
    base = dataclasses.replace(read_fields(RunConfig, given), techniques=read_fields(Techniques, given))
    return cell.apply_to(base, own)


class TargetAction(argparse.Action):
    """Reads a flag that names an engine, `--for` or `--on`."""

    def __call__(
        self, parser: object, namespace: argparse.Namespace, values: object, option_string: str | None = None
    ) -> None:
        """Reads a target as `read_target` does.

        Raises:
            ConfigError: There is no such engine or setting, or the flag is given twice.
        """
        from samestep.experiments.submitting.targets import read_target  # here: few commands start anything elsewhere

        if getattr(namespace, self.dest, None) is not None:
            raise ConfigError(f"{option_string} is given twice; a run is started in one place.")
        setattr(namespace, self.dest, read_target(str(option_string), str(values)))


def open_engine(target: "Target") -> "JobExecutor":
    """Returns the object that executes runs under the engine that a command line names.

    Raises:
        ConfigError: samestep cannot start runs there.
    """
    from samestep.experiments.submitting.jobs import executor_of

    return executor_of(target)
