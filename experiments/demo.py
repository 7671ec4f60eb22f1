"""Trains two rows, then one with a mistake in it, and says which mistake: `samestep demo`."""

import dataclasses
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from samestep.common.errors import Unavailable
from samestep.common.flags import split_spelling
from samestep.experiments.cli.ending import run_command
from samestep.experiments.cli.parser import Parser
from samestep.experiments.printing.text import fill, github, screen_width

if TYPE_CHECKING:
    from samestep.common.request import RunConfig
    from samestep.common.runtime.parent.launcher import Launcher
    from samestep.common.runtime.records import RunResult

PLANTER = "samestep.torch_impl.planted"
ROWS = ("torch:ddp", "tf:mirrored", "torch:fsdp")
"""The strategies to choose from. The mistake is planted in the first one; the second one to train is the next that is
installed."""
WORKLOAD = "prose-gpt+layers=1+heads=2+width=16+context=8"
"""The optimizer and settings in which a mistake matters in every workload."""
STEPS, SHOWN = 20, (0, 1, 5, 10, 19)
NEXT = """Next:
  samestep demo --mistake {other}
  samestep compare
  samestep record --out one -- python train.py"""


def main(arguments: Sequence[str]) -> int:
    """Trains, and prints the results; returns 1 if the mistake was not found.

    Raises:
        SamestepError: There is no such mistake, PyTorch is not installed, or a run failed.
    """
    from samestep.torch_impl.planted import PLANTED

    parser = Parser(
        prog="samestep demo",
        description="Train two strategies that are right, then one with a mistake planted in it, and name the mistake.",
    )
    parser.add_argument(
        "--mistake",
        metavar="MISTAKE",
        choices=PLANTED,
        default="clip_by_local_norm",
        help=f"the mistake, one of: {', '.join(PLANTED)} (default: %(default)s)",
    )
    mistake: str = parser.parse_args(arguments).mistake
    from samestep.common.runtime.parent.launcher import Launcher  # here, like the others: --help imports no NumPy

    first, second = _requests(mistake)
    with tempfile.TemporaryDirectory(prefix="samestep-demo-") as name, Launcher(worker=PLANTER) as launcher:
        folder = Path(name)
        about = f"Two strategies train {first.workload} for {STEPS} steps in float64, then the first again with a mistake in it."
        print(f"{fill(about)}\n", flush=True)
        launcher.warm(dict.fromkeys((first.framework, second.framework)))
        right = _shown(first, train(launcher, first, folder / "first"))
        _shown(second, train(launcher, second, folder / "second"))
        mistaken = _shown(first, train(launcher, first, folder / "mistaken", mistake), ", with a mistake in it")
    print(_told(mistake, right, mistaken))
    print(NEXT.format(other=next(name for name in PLANTED if name != mistake)))
    return 0 if _is_other_step(mistaken) else 1


def _requests(mistake: str) -> "tuple[RunConfig, RunConfig]":
    """Returns the requests of the two rows, both for the cell in which the mistake matters.

    Raises:
        Unavailable: Not even the first row is installed.
    """
    from samestep.common.cell import Cell
    from samestep.common.reference.known import KNOWN
    from samestep.common.request import RunConfig, launch_of
    from samestep.common.run import parse
    from samestep.common.runtime.parent.check import check_launch
    from samestep.common.workload.optimizers.table import OPTIMIZERS  # the first is SGD: Adam hides what only scales

    workload, settings = split_spelling(next(each.cell for each in KNOWN if each.name == mistake) or WORKLOAD)
    base = RunConfig(
        workload=workload,
        optimizer=next(iter(OPTIMIZERS)),
        devices=2,
        batch_size=16,
        steps=STEPS,
        dtype="float64",
        parity=True,
    )
    asked = [Cell.parse(row).extended(settings).apply_to(base) for row in ROWS]
    found: list[RunConfig] = []
    for each in asked:
        try:
            check_launch(parse(each), launch_of(each))
            found.append(each)
        except Unavailable:
            if not found:
                raise
    return found[0], found[1]


def train(launcher: "Launcher", asked: "RunConfig", out: Path, mistake: str = "") -> "RunResult":
    """Trains a row, with a mistake in its step if one is named.

    Args:
        launcher: Starts workers of PLANTER.
        asked: What to train.
        out: The new directory of the run.
        mistake: A key of PLANTED in that module; "" for none.
    """
    from samestep.common.request import launch_of
    from samestep.common.run import parse
    from samestep.torch_impl.planted import MISTAKE

    config = dataclasses.replace(asked, out=str(out))
    return launcher.run(parse(config), launch_of(config), environment={MISTAKE: mistake} if mistake else {})


def _shown(asked: "RunConfig", result: "RunResult", suffix: str = "") -> "RunResult":
    """Prints in one line whether a row took the same step, and returns its result."""
    name = f"{asked.framework}:{asked.strategy}{suffix}"
    print(f"  {name:<36}{'NOT the same step' if _is_other_step(result) else 'same step'}", flush=True)
    return result


def _is_other_step(result: "RunResult") -> bool:
    return result.parity.passed is False


def _told(mistake: str, right: "RunResult", mistaken: "RunResult") -> str:
    """Returns what samestep says about the mistake, and a table of losses that hardly show it."""
    table = github(
        ["loss of step", *map(str, SHOWN)],
        [
            [name, *(f"{run.losses[step]:.4f}" for step in SHOWN)]
            for name, run in (("right", right), ("mistaken", mistaken))
        ],
    )
    said = mistaken.parity.reason or "nothing: every loss that was judged is the right one."
    row = f"{right.config.framework}:{right.config.strategy}"
    planted = f"The mistake that was planted in the step of {row} is {mistake}. samestep was not told. It says:"
    return f"""
{fill(planted)}
  {fill(said, screen_width() - 2, "  ")}

Its losses, next to those of the correct run:

{table}
"""


if __name__ == "__main__":
    run_command(main)
