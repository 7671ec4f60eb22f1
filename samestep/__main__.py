"""The command `samestep COMMAND ...`, and `python -m samestep COMMAND ...`: each command is a module of `experiments`."""

import importlib
import sys
from collections.abc import Callable, Iterator, Sequence

from samestep.common.errors import ConfigError, unknown
from samestep.experiments.cli.commands import COMMANDS
from samestep.experiments.cli.ending import run_command
from samestep.experiments.printing.text import fill, screen_width

TITLE = "samestep: one training step, under every distribution strategy of PyTorch and TensorFlow, proven to be the same step."
BEGIN = {
    "samestep demo": "what it does, in ten seconds",
    "samestep record --out one -- python train.py": "your own script, unchanged",
    "samestep compare": "every strategy, in one table",
}
"""The commands for newcomers."""
OTHER_NAMES = {
    "forecast": "predict",
    "train": "run",
    "benchmark": "compare",
    "list": "strategies",
    "prepare": "run --prepare",
    "resume": "run --resume",
    "validate": "predict --validate",
}
"""Words that a user may type -> the command."""
COMPLETION = "--completion"


def main() -> None:
    """Runs the command that the first argument names on the other arguments."""
    name, arguments = (sys.argv[1:2] or [""])[0], sys.argv[2:]
    if name == "help":
        name, arguments = (arguments[0], ["--help"]) if arguments else ("", [])
    if name == "--version":
        run_command(_version, arguments)
    elif name == COMPLETION:
        run_command(_complete, arguments)
    elif name in ("", "-h", "--help"):
        run_command(_begin, arguments)
    else:
        run_command(lambda given: _command(name)(given), arguments)


def _begin(arguments: Sequence[str]) -> int:
    print("\n".join(_overview(screen_width())))
    return 0


def _overview(width: int) -> Iterator[str]:
    yield from (fill(TITLE, width), "", "Begin with:")
    yield from (fill(f"  {line:<46}{text}", width, " " * 6) for line, text in BEGIN.items())
    yield from ("", fill("usage: samestep COMMAND ... (`samestep help COMMAND` explains one)", width), "")
    yield from (fill(f"  {command:<12}{text}", width, " " * 14) for command, text in COMMANDS.items())


def _version(arguments: Sequence[str]) -> int:
    import importlib.metadata  # here: no command needs it

    print(f"samestep {importlib.metadata.version('samestep')}")
    return 0


def _complete(arguments: Sequence[str]) -> int:
    from samestep.experiments.cli.completion import SHELLS, script  # here: no command needs it

    if len(arguments) != 1:
        raise ConfigError(f"{COMPLETION} takes a shell, one of {', '.join(SHELLS)}.")
    print(script(arguments[0]))
    return 0


def _command(name: str) -> Callable[[Sequence[str]], int]:
    if name not in COMMANDS:
        owner = f"It is called {OTHER_NAMES[name]} here." if name in OTHER_NAMES else ""
        raise unknown("command", name, COMMANDS, owner=owner)
    return importlib.import_module(f"samestep.experiments.{name}").main


if __name__ == "__main__":
    main()
