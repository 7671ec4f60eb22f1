"""The command `samestep COMMAND ...`, and `python -m samestep COMMAND ...`: each command is a module of `experiments`."""

import importlib
import sys
from collections.abc import Callable, Sequence

from samestep.common.errors import unknown
from samestep.experiments.cli.arguments import run_command

COMMANDS = {
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


def main() -> None:
    """Runs the command that the first argument names on the other arguments."""
    name, arguments = (sys.argv[1:2] or ["--help"])[0], sys.argv[2:]
    if name in ("-h", "--help"):
        lines = [f"  {command:<12}{text}" for command, text in COMMANDS.items()]
        print("\n".join(["usage: samestep COMMAND ... (each has its own --help)", "", *lines]))
        return
    run_command(lambda given: _command(name)(given), arguments)


def _command(name: str) -> Callable[[Sequence[str]], int]:
    if name not in COMMANDS:
        raise unknown("command", name, COMMANDS)
    return importlib.import_module(f"samestep.experiments.{name}").main


if __name__ == "__main__":
    main()
