"""Parsers of commands, made from dataclasses, whose fields are the flags and whose metadata are the help.

They use argparse instead of a generator of command lines, so every mistake is one line and `--help` answers at once.
"""

import argparse
import re
import textwrap
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, NoReturn

from samestep.common.errors import ConfigError, unknown
from samestep.common.flags import flags

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

MOST_USED = ("workload", "devices", "steps", "optimizer", "dtype", "parity")
"""The flags that the help of a command shows before all others."""


class _WholeWords(argparse.HelpFormatter):
    """Breaks lines between words only; argparse would also break the name of a flag or of a model at a hyphen."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(" ".join(text.split()), width, break_long_words=False, break_on_hyphens=False)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "\n".join(indent + line for line in self._split_lines(text, width - len(indent)))


class HelpShown(SystemExit):
    """The end of a command that has printed its help; `parser` is the parser with those flags."""

    def __init__(self, parser: "Parser") -> None:
        super().__init__(0)
        self.parser = parser


class Parser(argparse.ArgumentParser):
    """An argument parser whose complaints are ours: one line, exit code 2. Its help opens with examples, if it has any.

    Attributes:
        examples: Command lines that the help shows.
        elsewhere: A flag or value that it does not take -> a sentence that says what to give instead.
        given: The value of each flag that it has read.
    """

    examples: Sequence[str] = ()
    elsewhere: Mapping[str, str] = MappingProxyType({})

    def __init__(
        self,
        prog: str,
        description: str | None = None,
        parents: Sequence["Parser"] = (),
        add_help: bool = True,
        conflict_handler: str = "error",
    ) -> None:
        """Makes a parser without arguments, which reads no flag that is cut short.

        Args:
            prog: The command, as its messages name it.
            description: What the command does.
            parents: Parsers whose flags it has as well.
            add_help: Whether it has `--help`.
            conflict_handler: What becomes of two flags of one name: "error" or "resolve".
        """
        super().__init__(
            prog=prog,
            description=description,
            parents=parents,
            add_help=add_help,
            conflict_handler=conflict_handler,
            allow_abbrev=False,
        )
        for name in (None, "store"):
            self.register("action", name, _Once)
        self.given = dict[str, object]()

    def format_help(self) -> str:
        """Returns the help. If there are examples, it begins with the usage in one line and the examples."""
        text = super().format_help()
        if not self.examples:
            return text
        words = [_spell_word(action) for action in self._actions if not action.option_strings]
        lines = [f"usage: {' '.join([self.prog, *words, '[--flag VALUE ...]'])}"]
        lines += ["", *(f"  {example}" for example in self.examples), ""]
        return "\n".join(lines) + text.partition("\n\n")[2].join(("\n", ""))

    def offered(self) -> dict[str, list[str]]:
        """Returns each flag that the help lists with its choices; [] if it takes any value, or none."""
        return {
            flag: [*map(str, action.choices or ())]
            for action in self._actions
            for flag in action.option_strings
            if flag.startswith("--") and action.help != argparse.SUPPRESS
        }

    def print_help(self, file: "SupportsWrite[str] | None" = None) -> NoReturn:
        """Prints the help, which ends the command."""
        super().print_help(file)
        raise HelpShown(self)

    def _check_value(self, action: argparse.Action, value: object) -> None:
        if action.choices is not None and value not in action.choices:
            what = re.sub("[-_]", " ", str(action.metavar or action.dest).lower())
            raise unknown(what, str(value), map(str, action.choices), owner=self.elsewhere.get(str(value), ""))
        # Flags of a dataclass, and actions of ours, say what they take.
        if value == "" and type(action) is _Once and action.default is not argparse.SUPPRESS:
            raise ConfigError(f"{_spell(action)} is empty; give a value; {self.prog} --help lists what there is.")

    def _get_formatter(self) -> argparse.HelpFormatter:
        return _WholeWords(prog=self.prog)

    def error(self, message: str) -> NoReturn:
        """Raises an error instead of printing the whole usage; for an unknown flag it names the most similar one."""
        known = [name for name in self._option_string_actions if name[:2] == "--"]
        if found := re.match("unrecognized arguments: (--?[^- =][^ =]*)", message):
            raise unknown("option", found[1], known, owner=self.elsewhere.get(found[1], ""))
        if found := re.match("unrecognized arguments: ([^- ][^ ]*)", message):
            message = self._say_word(found[1], known)
        elif found := re.match("argument ([^:]+): invalid int value: ('.*')$", message, re.DOTALL):
            message = f"{found[1]} is {found[2]}; give a whole number"
        elif found := re.match("argument ([^:]+): ignored explicit argument ('.*')$", message, re.DOTALL):
            message = f"{found[1]} takes no value, and {found[2]} is given"
        elif found := re.match("argument ([^:]+): not allowed with argument (.+)", message):
            message = f"{found[2]} and {found[1]} are both given; give one of them"
        elif found := re.match("(?:the following|one of the) arguments (?:are|--.* is) required", message):
            names = re.findall(r"--[\w-]+|[A-Z]\w*", message)
            message = f"{self.prog} needs {(' or ' if names[0][0] == '-' else ' and ').join(names)}"
            message += f", as in: {self.examples[0]}" if self.examples else ""
        elif found := re.match("argument (--[^ ]+): expected one argument", message):
            message = f"{found[1]} has no value"
        raise ConfigError(f"{message}{'' if message[-1] == '?' else ';'} {self.prog} --help lists what there is.")

    def _say_word(self, word: str, known: Collection[str]) -> str:
        """Returns why a word that is neither a flag nor a value of one is refused."""
        if any(not action.option_strings for action in self._actions):
            return f"'{word}' is one word too many"
        flag = "--model" if word.endswith(".py") else "--workload"
        return f"'{word}' follows no flag{f': did you mean {flag} {word}?' * (flag in known)}"


def _spell(action: argparse.Action) -> str:
    """Returns an argument as messages call it: its flag, or the word in its place."""
    return next(iter(action.option_strings[::-1]), str(action.metavar or action.dest))


def _spell_word(action: argparse.Action) -> str:
    """Returns an argument that is not a flag, as the usage shows it."""
    word = str(action.metavar or action.dest)
    number = str(getattr(action, "save_nargs", action.nargs))  # saved while argparse reads flags only
    return {"?": f"[{word}]", argparse.SUPPRESS: f"[{word}]", "*": f"[{word} ...]", "+": f"{word} ..."}.get(
        number, word
    )


class _Once(argparse._StoreAction):
    """A flag with a value. Two different values are refused, because one is probably a forgotten line of a script."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[object] | None,
        option_string: str | None = None,
    ) -> None:
        """Refuses the second of two that differ."""
        assert isinstance(parser, Parser)
        if option_string and (first := parser.given.setdefault(self.dest, values)) != values:
            raise ConfigError(f"{option_string} is given twice, as {first} and as {values}; give it once.")
        super().__call__(parser, namespace, values, option_string)


class _EitherWay(argparse.BooleanOptionalAction):
    """`--name` or `--no-name`. Both together are refused: one is probably a forgotten line of a script."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[object] | None,
        option_string: str | None = None,
    ) -> None:
        """Refuses a flag that contradicts an earlier one."""
        wanted = option_string in self.option_strings[:1]
        if getattr(namespace, self.dest, wanted) is not wanted:
            raise ConfigError(f"{' and '.join(self.option_strings)} are both given; give one of them.")
        super().__call__(parser, namespace, values, option_string)


def add_flags(parser: Parser, title: str, owner: type, leave_out: Collection[str] = ()) -> argparse._ArgumentGroup:
    """Adds a group with a flag for each field of a dataclass, and returns it.

    Args:
        parser: Receives the flags; every value is read as text.
        title: The title of the group.
        owner: A dataclass type, its fields declared with `flag`.
        leave_out: Fields that get no flag.
    """
    fields = {name: field for name, field in flags(owner).items() if name not in leave_out}
    most_used = [fields.pop(name) for name in MOST_USED if name in fields and len(fields) > len(MOST_USED)]
    group = parser.add_argument_group(f"{title}, most used" if most_used else title)
    for place, field in enumerate([*most_used, *fields.values()]):
        if most_used and place == len(most_used):
            group = parser.add_argument_group(title)
        name, text = "--" + field.name.replace("_", "-"), str(field.metadata["help"]).replace("%", "%%")
        if field.type in (bool, "bool") or field.type == bool | None:
            action = _EitherWay if field.default is None else "store_true"
            group.add_argument(name, action=action, default=argparse.SUPPRESS, help=text)
        else:
            shown = "" if field.default is None else f" (default: {field.default})"
            parser.elsewhere = {**parser.elsewhere, **field.metadata["elsewhere"]}
            group.add_argument(
                name,
                choices=[*map(str, field.metadata["choices"])] or None,
                default=argparse.SUPPRESS,
                metavar=name[2:].upper(),
                help=text + shown,
            )
    return group
