"""Parsers of commands, made from dataclasses: their fields are the flags, their metadata the help.

argparse and not a generator of command lines, so that every mistake is one line and `--help` answers at once.
"""

import argparse
from collections.abc import Sequence
from typing import NoReturn

from samestep.common.errors import ConfigError
from samestep.common.flags import flags
from samestep.common.judging.confounds import CONFOUNDS
from samestep.experiments.printing.formats import FORMATS

ALLOW = f"rank rows by their speed in spite of these confounds; may be given several times: {', '.join(CONFOUNDS)}"
"""The help of `--allow`."""


class Parser(argparse.ArgumentParser):
    """An argument parser whose complaints are ours: one line, exit code 2."""

    def error(self, message: str) -> NoReturn:
        """Raises instead of printing the whole usage."""
        raise ConfigError(f"{message}; {self.prog} --help lists what there is.")


class _EitherWay(argparse.BooleanOptionalAction):
    """`--name` or `--no-name`: both would mean that one of two lines of a script is forgotten."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[object] | None,
        option_string: str | None = None,
    ) -> None:
        """Refuses the second of two that disagree."""
        wanted = option_string in self.option_strings[:1]
        if getattr(namespace, self.dest, wanted) is not wanted:
            raise ConfigError(f"{' and '.join(self.option_strings)} are both given; give one of them.")
        super().__call__(parser, namespace, values, option_string)


def add_flags(
    parser: argparse.ArgumentParser, title: str, owner: type, leave_out: Sequence[str] = ()
) -> argparse._ArgumentGroup:
    """Adds a group with a flag for each field of a dataclass, and returns it.

    Args:
        parser: Receives the flags; every value is read as text.
        title: The title of the group.
        owner: A dataclass type, its fields declared with `flag`.
        leave_out: Fields that get no flag.
    """
    group = parser.add_argument_group(title)
    for field in (field for name, field in flags(owner).items() if name not in leave_out):
        name, text = "--" + field.name.replace("_", "-"), str(field.metadata["help"]).replace("%", "%%")
        if field.type in (bool, "bool") or field.type == bool | None:
            action = _EitherWay if field.default is None else "store_true"
            group.add_argument(name, action=action, default=argparse.SUPPRESS, help=text)
        else:
            shown = "" if field.default is None else f" (default: {field.default})"
            metavar = name[2:].upper()
            group.add_argument(name, default=argparse.SUPPRESS, metavar=metavar, help=text + shown)
    return group


def add_format(parser: argparse.ArgumentParser) -> None:
    """Adds `--format`."""
    text = f"one of {', '.join(FORMATS)}: github is for people, the others are for programs (default: github)"
    parser.add_argument("--format", default="github", metavar="FORMAT", help=text)
