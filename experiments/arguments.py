"""The command line, made from the dataclasses: their fields are the flags, their metadata the help.

argparse and not a generator of command lines, so that every mistake is one line and `--help` answers at once.
"""

import argparse
import dataclasses
import re
import sys
import textwrap
from collections.abc import Callable, Container, Mapping, Sequence
from typing import NoReturn

from samestep.common.catalog import catalogue, foreign_option, frameworks_with, read_options, strategy_info
from samestep.common.errors import ConfigError, unknown
from samestep.common.flags import Scalar, flags, read_fields, spell_flag, split_spelling
from samestep.common.request import RunConfig, Techniques
from samestep.experiments.ending import report_errors
from samestep.experiments.formats import FORMATS

CELL_FIELDS = tuple(name for name, field in flags(RunConfig).items() if field.metadata["in_cell"])
"""The fields of a request that a cell may set."""
Group = tuple[str, type, Sequence[str]]
"""Flags of a command: their title in its help, the dataclass whose fields they are, and the fields that are no flags of it."""


class Parser(argparse.ArgumentParser):
    """An argument parser whose complaints are ours: one line, exit code 2."""

    def error(self, message: str) -> NoReturn:
        """Raises instead of printing the whole usage."""
        raise ConfigError(f"{message}; {self.prog} --help lists what there is.")


def add_flags(parser: argparse.ArgumentParser, title: str, owner: type, leave_out: Sequence[str] = ()) -> None:
    """Adds a group with a flag for each field of a dataclass.

    Args:
        parser: Receives the flags; every value is read as text.
        title: Of the group.
        owner: A dataclass type, its fields declared with `flag`.
        leave_out: Fields that get no flag.
    """
    group = parser.add_argument_group(title)
    for field in (field for name, field in flags(owner).items() if name not in leave_out):
        name, text = "--" + field.name.replace("_", "-"), str(field.metadata["help"]).replace("%", "%%")
        if field.type in (bool, "bool") or field.type == bool | None:
            action = argparse.BooleanOptionalAction if field.default is None else "store_true"
            group.add_argument(name, action=action, default=argparse.SUPPRESS, help=text)
        else:
            shown = "" if field.default is None else f" (default: {field.default})"
            metavar = name[2:].upper()
            group.add_argument(name, default=argparse.SUPPRESS, metavar=metavar, help=text + shown)


def add_format(parser: argparse.ArgumentParser) -> None:
    """Adds `--format`."""
    text = f"one of {', '.join(FORMATS)}: github is for people, the others are for programs (default: github)"
    parser.add_argument("--format", default="github", metavar="FORMAT", help=text)


def parse_run(arguments: Sequence[str], program: str) -> RunConfig:
    """Reads the line of one run: its cell, RunConfig's flags, the techniques', and those of the strategy that is named.

    Args:
        arguments: Without the program.
        program: Its name, for the help.

    Raises:
        ConfigError: A flag is unknown, belongs to another strategy, or has a value it cannot have.
    """
    groups = [("run", RunConfig, ()), ("techniques", Techniques, ())]
    cell = named_cell(arguments, program, groups) or f"{RunConfig.framework}:{RunConfig.strategy}"
    about = "Train a workload under one strategy and compare its steps with the oracle's."
    return read_request(cell, parse_beside(cell, arguments, Parser(prog=program, description=about), groups))


def parse_beside(
    cell: str | None, arguments: Sequence[str], parser: Parser, groups: Sequence[Group]
) -> dict[str, Scalar]:
    """Reads what a command is given beside the cell that it names.

    Args:
        cell: The cell with its framework, whose strategy has options; None has none.
        arguments: Without the program.
        parser: Has the program and what it does.
        groups: The flags under any strategy.

    Raises:
        ConfigError: A flag is unknown, or belongs to another strategy.
    """
    verb = parser.prog.rpartition(" ")[2]
    told = f"what to {verb}, in place of --framework and --strategy: torch:ddp or torch:ddp+clip_norm=1"
    parser.allow_abbrev = False
    parser.add_argument("cell", nargs="?", metavar="CELL", help=told)
    for title, owner, leave_out in groups:
        add_flags(parser, title, owner, leave_out)
    framework, _, strategy = split_spelling(cell or "")[0].partition(":")
    info = strategy_info(framework, strategy) if cell else None
    if info is not None:
        parser.description = textwrap.fill(f"{parser.description} {framework}:{info.name}: {info.summary}")
        if flags(info.options):
            add_flags(parser, f"{framework}:{info.name}", info.options)
    values, foreign = parser.parse_known_intermixed_args(arguments)
    for word in foreign[:1]:
        name = word[2:].partition("=")[0].replace("-", "_")
        if info is None or any(name in leave_out for _, _, leave_out in groups):
            raise ConfigError(f"{spell_flag(name)} is no flag of {parser.prog}{'' if info else ' without a strategy'}.")
        raise foreign_option(framework, info, name)
    return {name: value for name, value in vars(values).items() if name not in ("cell", "framework", "strategy")}


def named_cell(arguments: Sequence[str], program: str, groups: Sequence[Group]) -> str | None:
    """Finds the cell that a command's arguments name; its flags are only known once its strategy is.

    Args:
        arguments: Without the program.
        program: Its name, for messages.
        groups: The command's flags under any strategy.

    Returns:
        The cell with its framework, or None if none is named.

    Raises:
        ConfigError: A flag is unknown, or two cells are named.
    """
    first = Parser(prog=program, add_help=False, allow_abbrev=False, conflict_handler="resolve")
    owners = [*(owner for _, owner, _ in groups), *dict.fromkeys(row.options for _, row in catalogue())]
    for owner in owners:
        add_flags(first, "", owner)
    chosen, rest = first.parse_known_args(arguments)
    for word in rest:
        if word.startswith("--") and word != "--help":
            every = [spell_flag(name) for owner in owners for name in flags(owner)]
            raise unknown("option", word.partition("=")[0], dict.fromkeys(every))
        if word.startswith("-") and word not in ("-h", "--help"):
            raise ConfigError(f"'{word}' is no flag; every flag is written as --name value.")
    named = [word for word in rest if not word.startswith("-")]
    named += [chosen.strategy] if "strategy" in chosen else []
    if len(named) > 1:
        raise ConfigError(f"'{named[0]}' and '{named[1]}' both name what to run; give one of them.")
    framework = getattr(chosen, "framework", None)
    if not named and framework is None:
        return None
    text = (named or [RunConfig.strategy])[0]
    prefix, colon, _ = text.partition("+")[0].partition(":")
    if framework is None:
        return complete_cell(text, RunConfig.framework)
    if colon and prefix != framework:
        raise ConfigError(f"--framework {framework} disagrees with {text}; leave out --framework.")
    return text if colon else f"{framework}:{text}"


def complete_cell(text: str, default: str | None = None) -> str:
    """Puts the framework before a strategy that was named without one.

    Args:
        text: A cell, or one without `framework:`, where only one framework has the strategy.
        default: The framework that is meant where several have it.

    Raises:
        ConfigError: No framework has it, or several have.
    """
    name = text.partition("+")[0]
    if ":" in name:
        return text
    owners = frameworks_with(name)
    if not owners:
        raise unknown("strategy", name, dict.fromkeys(row.name for _, row in catalogue()), "Write it as in torch:ddp.")
    if len(owners) > 1 and default not in owners:
        raise ConfigError(
            f"'{name}' is a strategy of several frameworks; give {' or '.join(f'{o}:{text}' for o in owners)}."
        )
    return f"{default if default in owners else owners[0]}:{text}"


def split_cells(flag: str, text: str) -> list[str]:
    """Reads cells that are separated by commas; a comma before `axis=` belongs to the mesh of a cell.

    Args:
        flag: Where they were given.
        text: As in `torch:ddp,torch:hybrid+mesh=pipe=2,tensor=2,tf:mirrored`.

    Raises:
        ConfigError: One is empty, or names a strategy that is not there.
    """
    cells = [cell.strip() for cell in re.split(r",(?!\s*\w+=)", text)]
    if not all(cells):
        raise ConfigError(f"{flag} '{text}' has an empty cell; name cells, as in torch:ddp,tf:mirrored.")
    return [complete_cell(cell) for cell in cells]


def read_request(cell: str, given: Mapping[str, Scalar]) -> RunConfig:
    """Makes a request of a cell and of what was given beside it.

    Args:
        cell: As in `torch:ddp+clip_norm=1`.
        given: Fields of RunConfig, of Techniques, and options of the strategy.

    Raises:
        ConfigError: Something is set in both, or there is no such option or value.
    """
    for name in split_spelling(cell)[1]:
        if name in given:
            raise ConfigError(f"{cell} and {spell_flag(name)} both set {name}; give it once.")
    own = {name: value for name, value in given.items() if name not in {**flags(RunConfig), **flags(Techniques)}}
    base = dataclasses.replace(read_fields(RunConfig, given), techniques=read_fields(Techniques, given))
    return apply_cell(cell, base, own)


def apply_cell(text: str, base: RunConfig, beside: Mapping[str, Scalar] | None = None) -> RunConfig:
    """Reads `framework:strategy+option=value+technique=value+devices=4+width=64+mesh=axis=size,axis=size`.

    What may be set in a cell: options of its strategy, techniques, the mesh, those fields of a request in which rows of a
    comparison may differ, and the sizes of the workload.

    Args:
        text: The cell; the framework may be left out where only one has the strategy.
        base: The rest of the request; what the cell does not name is the base's.
        beside: Options of the strategy that were given elsewhere.

    Raises:
        ConfigError: It is not spelled so, or there is no such framework, strategy, or name to be set.
    """
    name, given = split_spelling(complete_cell(text))
    framework, _, strategy = name.partition(":")
    info = strategy_info(framework, strategy)
    fields = {name: given.pop(name) for name in CELL_FIELDS if name in given}
    techniques: dict[str, Scalar] = {name: given.pop(name) for name in flags(Techniques) if name in given}
    mesh = given.pop("mesh", base.mesh)
    sizes = _take_sizes(given, flags(info.options), base)
    return dataclasses.replace(
        base,
        framework=framework,
        strategy=info.name,
        mesh=mesh,
        **{name: getattr(read_fields(RunConfig, {**fields}), name) for name in fields},
        **sizes,
        options=dataclasses.asdict(read_options(framework, info, {**given, **(beside or {})})),
        techniques=read_fields(Techniques, dataclasses.asdict(base.techniques) | techniques),
    )


def _take_sizes(given: dict[str, str], options: Container[str], base: RunConfig) -> dict[str, str]:
    """Takes the sizes of the workload out of what a cell sets; returns the workload that has them, if there are any."""
    if all(name in options for name in given):
        return {}
    from samestep.common.workload.table import resize, size_names  # here: --help imports no NumPy

    known = size_names(base.workload, base.data)
    sizes = {name: given.pop(name) for name in list(given) if name in known and name not in options}
    return {"workload": resize(base.workload, sizes)} if sizes else {}


def run_command(command: Callable[[Sequence[str]], int], arguments: Sequence[str] | None = None) -> NoReturn:
    """Runs a command and exits; our own errors become one line and their exit code.

    Args:
        command: Takes the arguments, returns the exit code.
        arguments: The process's own, unless given.
    """
    with report_errors() as code:
        code[0] = command(sys.argv[1:] if arguments is None else arguments)
    sys.exit(code[0])
