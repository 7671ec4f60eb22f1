"""The command `samestep COMMAND ...`, and `python -m samestep COMMAND ...`: each command is a module of `experiments`."""

import importlib
import importlib.metadata
import sys
from collections.abc import Callable, Iterator, Sequence

from samestep.common.errors import unknown
from samestep.experiments.cli.arguments import run_command
from samestep.experiments.printing.text import fill, screen_width

COMMANDS = {
    "demo": "in ten seconds: two rows that take the same step, and one with a mistake in it, found and named",
    "run": "train one workload under one strategy",
    "compare": "train one workload under many strategies and print one table",
    "diff": "say whether two recorded scripts took the same steps, and where they first differ",
    "predict": "predict what a step holds and sends, without running it",
    "record": "run your training script and record what every step did, without a changed line",
    "port": "say whether your torch model and your Keras model are the same, and which layer differs first",
    "advise": "rank the layouts of a model on a machine that need not be here",
    "report": "write a page, or tables, about runs and comparisons",
    "calibrate": "measure this machine for `advise --machine here`",
    "checkpoints": "list the checkpoints of a run, and whether they are whole",
    "ledger": "prove that every example of every step was gathered once, however often the run died",
    "strategies": "print the catalogue of strategies, or one strategy in full",
    "clean": "show what samestep keeps on this disk, and remove what you name",
    "export": "replay runs into TensorBoard or MLflow, write states as safetensors, dcp or tf",
    "worker": "run one process of a run that `run --prepare` wrote",
}


TITLE = "samestep: one training step, under every distribution strategy of PyTorch and TensorFlow, proven to be the same step."
BEGIN = {
    "samestep demo": "what it does, in ten seconds",
    "samestep record --out one -- python train.py": "your own script, as it is",
    "samestep compare": "every strategy, as one table",
}
"""What a newcomer can type first."""


def main() -> None:
    """Runs the command that the first argument names on the other arguments."""
    name, arguments = (sys.argv[1:2] or [""])[0], sys.argv[2:]
    if name == "--version":
        print(f"samestep {importlib.metadata.version('samestep')}")
    elif name in ("", "-h", "--help"):
        print("\n".join(_overview(screen_width())))
    else:
        run_command(lambda given: _command(name)(given), arguments)


def _overview(width: int) -> Iterator[str]:
    yield from (fill(TITLE, width), "", "Begin with:")
    yield from (f"  {line:<46}{text}" for line, text in BEGIN.items())
    yield from ("", "usage: samestep COMMAND ... (each has its own --help)", "")
    yield from (fill(f"  {command:<12}{text}", width, " " * 14) for command, text in COMMANDS.items())


def _command(name: str) -> Callable[[Sequence[str]], int]:
    if name not in COMMANDS:
        raise unknown("command", name, COMMANDS)
    return importlib.import_module(f"samestep.experiments.{name}").main


if __name__ == "__main__":
    main()
