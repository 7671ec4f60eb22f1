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

from common.config import RunConfig, Scalar, read_value, split_spelling
from common.errors import ConfigError, SamestepError, unknown
from common.runtime.check import check_options, foreign_option
from common.strategy import StrategyInfo, strategy_info

_NOT_FLAGS = ("options", "techniques")


class Parser(argparse.ArgumentParser):
    """An argument parser whose complaints are ours: one line, exit code 2."""

    def error(self, message: str) -> NoReturn:
        """Raises instead of printing the whole usage."""
        raise ConfigError(f"{message}; {self.prog} --help lists what there is.")


def add_flags(parser: argparse.ArgumentParser, owner: type, leave_out: Sequence[str] = ()) -> None:
    """Adds a flag for each field of a dataclass.

    Args:
        parser: Receives the flags; every value is read as text.
        owner: A dataclass type, each field with `metadata["help"]`.
        leave_out: Fields that get no flag.
    """
    for field in dataclasses.fields(owner):
        if field.name in leave_out:
            continue
        name, text = "--" + field.name.replace("_", "-"), str(field.metadata.get("help", "")).replace("%", "%%")
        if field.type in (bool, "bool") or field.type == bool | None:
            action = argparse.BooleanOptionalAction if field.default is None else "store_true"
            parser.add_argument(name, action=action, default=argparse.SUPPRESS, help=text)
        else:
            shown = "" if field.default is None else f" (default: {field.default})"
            metavar = name[2:].upper()
            parser.add_argument(name, default=argparse.SUPPRESS, metavar=metavar, help=text + shown)


def read_flags(values: dict[str, Scalar], owner: type) -> dict[str, Scalar]:
    """The values of a dataclass's fields among parsed flags, as the types it declares."""
    names = {field.name for field in dataclasses.fields(owner)}
    return {n: read_value(owner, n, v) if isinstance(v, str) else v for n, v in values.items() if n in names}


def parse_run(arguments: Sequence[str], program: str) -> RunConfig:
    """Reads the flags of one run: RunConfig's own, then those of the strategy that is named.

    Raises:
        ConfigError: A flag is unknown, belongs to another strategy, or has a value it cannot have.
    """
    first = Parser(prog=program, add_help=False, allow_abbrev=False)
    for name in ("framework", "strategy"):
        first.add_argument(f"--{name}", default=getattr(RunConfig, name))
    chosen, _ = first.parse_known_args(arguments)
    info = strategy_info(chosen.framework, chosen.strategy)

    parser = Parser(prog=program, allow_abbrev=False, description=_description(info, chosen.framework))
    add_flags(parser.add_argument_group("run"), RunConfig, _NOT_FLAGS)
    if dataclasses.fields(info.options):
        add_flags(parser.add_argument_group(f"{chosen.framework}:{info.name}"), info.options)
    values, rest = parser.parse_known_args(arguments)
    refuse_rest(rest, chosen.framework, info)
    flags = vars(values)
    options = {f.name: flags[f.name] for f in dataclasses.fields(info.options) if f.name in flags}
    checked = check_options(chosen.framework, info, options)
    return RunConfig(**read_flags(flags, RunConfig), options=checked)


def refuse_rest(rest: Sequence[str], framework: str, info: StrategyInfo) -> None:
    """Refuses what no flag took.

    Raises:
        ConfigError: There is something; an option of another strategy is told whose it is.
    """
    if rest:
        if not rest[0].startswith("--"):
            raise ConfigError(f"'{rest[0]}' is no flag; every argument is written as --name value.")
        raise foreign_option(framework, info, rest[0][2:].partition("=")[0].replace("-", "_"))


def parse_cell(text: str) -> tuple[str, StrategyInfo, dict[str, Scalar]]:
    """Reads `framework:strategy+option=value`.

    Raises:
        ConfigError: It is not spelled so, or there is no such framework, strategy or option.
    """
    name, options = split_spelling(text)
    framework, colon, strategy = name.partition(":")
    if not colon:
        raise unknown("cell", text, ["torch:ddp", "tf:mirrored"], "Write framework:strategy.")
    info = strategy_info(framework, strategy)
    return framework, info, check_options(framework, info, dict(options))


def _description(info: StrategyInfo, framework: str) -> str:
    return textwrap.fill(
        f"Train a workload under one strategy and hold every step against the oracle. {framework}:{info.name}: {info.summary}"
    )


@contextlib.contextmanager
def _told() -> Iterator[list[int]]:
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


def run_command(command: Callable[[Sequence[str]], int]) -> NoReturn:
    """Runs a command on the process's arguments; ours among the errors become one line and their exit code."""
    with _told() as code:
        code[0] = command(sys.argv[1:])
    sys.exit(code[0])
