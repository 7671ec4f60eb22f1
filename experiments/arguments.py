"""The command line, made from the dataclasses: their fields are the flags, their metadata the help.

argparse and not a generator of command lines, so that every mistake is one line and `--help` answers at once.
"""

import argparse
import contextlib
import dataclasses
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from typing import NoReturn

from samestep.common.catalog import foreign_option, read_options, strategy_info
from samestep.common.errors import ConfigError, SamestepError, unknown
from samestep.common.flags import Scalar, flags, read_fields, split_spelling
from samestep.common.request import RunConfig, Techniques
from samestep.common.strategy import StrategyInfo


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


def parse_run(arguments: Sequence[str], program: str) -> RunConfig:
    """Reads the flags of one run: RunConfig's own, the techniques', then those of the strategy that is named.

    Args:
        arguments: Without the program.
        program: Its name, for the help.

    Raises:
        ConfigError: A flag is unknown, belongs to another strategy, or has a value it cannot have.
    """
    first = Parser(prog=program, add_help=False, allow_abbrev=False)
    for name in ("framework", "strategy"):
        first.add_argument(f"--{name}", default=getattr(RunConfig, name))
    chosen, _ = first.parse_known_args(arguments)
    info = strategy_info(chosen.framework, chosen.strategy)

    parser = Parser(prog=program, allow_abbrev=False, description=_description(info, chosen.framework))
    add_flags(parser, "run", RunConfig)
    add_flags(parser, "techniques", Techniques)
    if flags(info.options):
        add_flags(parser, f"{chosen.framework}:{info.name}", info.options)
    values, rest = parser.parse_known_args(arguments)
    _refuse_rest(rest, chosen.framework, info)
    given = vars(values)
    options = read_options(chosen.framework, info, {name: given[name] for name in flags(info.options) if name in given})
    plain = read_fields(RunConfig, given)
    return dataclasses.replace(plain, options=dataclasses.asdict(options), techniques=read_fields(Techniques, given))


def _refuse_rest(rest: Sequence[str], framework: str, info: StrategyInfo) -> None:
    """Refuses what no flag took; the message for another strategy's option names that strategy."""
    if rest:
        if not rest[0].startswith("--"):
            raise ConfigError(f"'{rest[0]}' is no flag; every argument is written as --name value.")
        raise foreign_option(framework, info, rest[0][2:].partition("=")[0].replace("-", "_"))


def apply_cell(text: str, base: RunConfig) -> RunConfig:
    """Reads `framework:strategy+option=value+technique=value`.

    Args:
        text: The cell.
        base: The rest of the request; techniques that the cell does not name are the base's.

    Raises:
        ConfigError: It is not spelled so, or there is no such framework, strategy, option or technique.
    """
    name, given = split_spelling(text)
    framework, colon, strategy = name.partition(":")
    if not colon:
        raise unknown("cell", text, ["torch:ddp", "tf:mirrored"], "Write framework:strategy.")
    info = strategy_info(framework, strategy)
    named: dict[str, Scalar] = {name: value for name, value in given.items() if name in flags(Techniques)}
    others: dict[str, Scalar] = {name: value for name, value in given.items() if name not in named}
    return dataclasses.replace(
        base,
        framework=framework,
        strategy=info.name,
        options=dataclasses.asdict(read_options(framework, info, others)),
        techniques=read_fields(Techniques, dataclasses.asdict(base.techniques) | named),
    )


def _description(info: StrategyInfo, framework: str) -> str:
    return textwrap.fill(
        f"Train a workload under one strategy and hold every step against the oracle. {framework}:{info.name}: {info.summary}"
    )


@contextlib.contextmanager
def _report_errors() -> Iterator[list[int]]:
    code = [0]
    try:
        yield code
    except SamestepError as error:
        print(f"samestep: {error}", file=sys.stderr)
        code[0] = error.exit_code
    except KeyboardInterrupt:
        print("samestep: interrupted; nothing is left running.", file=sys.stderr)
        code[0] = 130
    except BrokenPipeError:
        code[0] = 1


def run_command(command: Callable[[Sequence[str]], int], arguments: Sequence[str] | None = None) -> NoReturn:
    """Runs a command and exits; our own errors become one line and their exit code.

    Args:
        command: Takes the arguments, returns the exit code.
        arguments: The process's own, unless given.
    """
    with _report_errors() as code:
        code[0] = command(sys.argv[1:] if arguments is None else arguments)
    sys.exit(code[0])
