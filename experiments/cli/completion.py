"""Completion for shells: `samestep --completion bash` prints a script, made from the help of every command."""

import contextlib
import importlib
import io
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from samestep.common.catalog import catalogue, cells
from samestep.common.errors import unknown
from samestep.common.flags import flags, spell_flag
from samestep.common.seconds.machine import machines
from samestep.common.workload.table import WORKLOADS
from samestep.experiments.cli.commands import COMMANDS

_TAKE_CELLS = ("run", "compare", "predict", "strategies", "advise", "explore")
"""The commands whose positional arguments may be strategies."""
_CELL_FLAGS = ("--strategies", "--require", "--reference")
"""The flags whose values are strategies."""
SHELLS = ("bash", "zsh", "fish")
PLACEHOLDER = "--flag"
"""What a usage line has instead of all flags."""
_SCRIPTS = Path(__file__).parent / "shells"


def script(shell: str) -> str:
    """Returns the script that a shell evaluates.

    Args:
        shell: One of `SHELLS`.

    Raises:
        ConfigError: The shell is not supported.
    """
    if shell not in SHELLS:
        raise unknown("shell", shell, SHELLS)
    helps = {command: _help_of(command) for command in COMMANDS}
    words = {command: _flags(text) for command, text in helps.items()}
    values = {(command, flag): found for command, text in helps.items() for flag, found in _values(text)}
    if shell == "fish":
        return "\n".join(["# In config.fish: samestep --completion fish | source", *_fish(words, values)])
    template = (_SCRIPTS / f"completion.{shell}").read_text()
    first = [*COMMANDS, "help", "--completion", "--help", "--version"]
    options: dict[str, list[str]] = {}
    for framework, row in catalogue():
        choices = {
            spell_flag(name): [*map(str, field.metadata["choices"])] for name, field in flags(row.options).items()
        }
        options[f"{framework}:{row.name}"] = [*choices]
        values |= {("run", flag): found for flag, found in choices.items() if found}
    values |= {("help", "help"): [*COMMANDS], ("--completion", "--completion"): [*SHELLS]}
    for name, text in {
        "COMMANDS": " ".join(first),
        "VALUES": _cases({f'"{command} {flag}"': found for (command, flag), found in values.items()}),
        "FLAGS": _cases({name: [*all_, *(_CELLS if name in _TAKE_CELLS else ())] for name, all_ in words.items()}),
        "OPTIONS": _cases({cell: own for cell, own in options.items() if own}),
    }.items():
        template = template.replace(f"@{name}@", text)
    return template


def _cases(words: Mapping[str, list[str]]) -> str:
    return "\n".join(f'        {case}) offered+=" {" ".join(found)}" ;;' for case, found in words.items())


def _fish(words: Mapping[str, list[str]], values: Mapping[tuple[str, str], list[str]]) -> Iterator[str]:
    for name, found in words.items():
        yield f"complete -c samestep -f -n __fish_use_subcommand -a {name} -d '{COMMANDS[name]}'"
        when = f"complete -c samestep -n '__fish_seen_subcommand_from {name}'"
        for flag in found:
            taken = values.get((name, flag))
            yield f"{when} -l {flag[2:]}" + (f" -xa '{' '.join(taken)}'" if taken else "")
        if name in _TAKE_CELLS:
            yield f"{when} -a '{' '.join(_CELLS)}'"


def _help_of(command: str) -> str:
    """Returns the help of a command, each run of spaces as one."""
    told = io.StringIO()
    with contextlib.redirect_stdout(told), contextlib.suppress(SystemExit):
        importlib.import_module(f"samestep.experiments.{command}").main(["--help"])
    return " ".join(told.getvalue().split())


def _flags(text: str) -> list[str]:
    """Returns the flags of a help; a strategy's own come with the strategy, and those of quoted commands are not ours."""
    found = dict.fromkeys(re.findall(r"(?<=[\s\[,])--[a-z][a-z0-9-]+", re.sub('"[^"]*"', "", text)))
    return [word for word in found if word != PLACEHOLDER]


def _values(text: str) -> Iterator[tuple[str, list[str]]]:
    """Yields the flags of a help that take one of a few values, and those values."""
    for flag, listed in re.findall(r"(--[a-z][a-z-]+) [A-Z-]+ (?:the \w+, )?one of:? ((?:[\w.-]+, )*[\w.-]+)", text):
        yield flag, listed.split(", ")
    known = {**dict.fromkeys(_CELL_FLAGS, _CELLS), "--workload": [*WORKLOADS], "--machine": [*machines(), "here"]}
    yield from ((flag, found) for flag, found in known.items() if f"{flag} " in text)


_CELLS = cells()
