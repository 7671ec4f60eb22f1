"""Completion for shells: `samestep --completion bash` prints a script, made from the flags of every command."""

import contextlib
import importlib
import io
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from samestep.common.catalog import catalogue, cells
from samestep.common.errors import unknown
from samestep.common.flags import flags, spell_flag
from samestep.common.seconds.machine import machines
from samestep.common.workload.table import WORKLOADS
from samestep.experiments.cli.commands import COMMANDS
from samestep.experiments.cli.parser import HelpShown
from samestep.experiments.submitting.targets import SCRIPTS, STARTED

_TAKE_CELLS = ("run", "compare", "predict", "strategies", "advise", "explore")
"""The commands whose positional arguments may be strategies."""
SHELLS = ("bash", "zsh", "fish")
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
    words = {command: _flags(command) for command in COMMANDS}
    values = {(command, flag): found for command, taken in words.items() for flag, found in taken.items() if found}
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
        for flag, found in (each for each in choices.items() if each[1]):
            values["run", flag] = [*dict.fromkeys([*values.get(("run", flag), ()), *found])]
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


def _fish(words: Mapping[str, Iterable[str]], values: Mapping[tuple[str, str], list[str]]) -> Iterator[str]:
    for name, found in words.items():
        yield f"complete -c samestep -f -n __fish_use_subcommand -a {name} -d '{COMMANDS[name]}'"
        when = f"complete -c samestep -n '__fish_seen_subcommand_from {name}'"
        for flag in found:
            taken = values.get((name, flag))
            yield f"{when} -l {flag[2:]}" + (f" -xa '{' '.join(taken)}'" if taken else "")
        if name in _TAKE_CELLS:
            yield f"{when} -a '{' '.join(_CELLS)}'"


def _flags(command: str) -> dict[str, list[str]]:
    """Returns each flag of a command with the values to offer; options of single strategies are not among them."""
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            importlib.import_module(f"samestep.experiments.{command}").main(["--help"])
    except HelpShown as shown:
        return {flag: choices or _OPEN.get(flag, []) for flag, choices in shown.parser.offered().items()}
    raise AssertionError(f"{command} has no help")


_CELLS = cells()
_OPEN = {
    **dict.fromkeys(("--strategies", "--require", "--reference", "--beside"), _CELLS),
    "--workload": [*WORKLOADS],
    "--machine": [*machines(), "here"],
    "--for": [*SCRIPTS],
    "--on": [*STARTED],
}
"""Values to offer for flags that also take other values."""
