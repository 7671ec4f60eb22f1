"""Measures what the cores of this machine compute and exchange: `samestep calibrate`, which `advise --machine here` reads."""

import dataclasses
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from samestep.common.catalog import require
from samestep.common.cell import Cell
from samestep.common.errors import WorkerFailed
from samestep.common.flags import Scalar
from samestep.common.runtime.parent.processes.scratch import make_scratch
from samestep.experiments.advising.candidate_meshes import FRAMEWORK
from samestep.experiments.cli.command_line import read_request
from samestep.experiments.cli.ending import run_command
from samestep.experiments.cli.parser import Parser
from samestep.experiments.printing.formats import Case, Document, add_format, write
from samestep.experiments.printing.text import fill, github, short

if TYPE_CHECKING:
    from samestep.common.runtime.parent.launcher import Launcher
    from samestep.common.seconds.core_time import Cores
    from samestep.experiments.advising.local_machine import LocalMachine  # --help needs no NumPy

RANKS = 2
LAYERS = (2, 8)
"""Numbers of layers of the two tiny models that show the overhead."""
STEPS = 60
TIMEOUT_SECONDS = 300
TRIES = 3
"""The most attempts to measure something whose result is impossible."""
Measured = TypeVar("Measured")
_ABOUT = (
    "Measure the cores of this machine, in less than a minute when it is idle: how fast it multiplies matrices of"
    " each size, how fast its memory is, how fast two processes exchange over gloo, and what a step of each torch"
    " strategy takes besides arithmetic."
)


def main(arguments: Sequence[str]) -> int:
    """Measures this machine, stores its file and prints the figures; returns 0.

    Raises:
        Unavailable: torch is not installed.
        ConfigError: The file cannot be written.
        WorkerFailed: A process that measures died, or the result is impossible.
    """
    parser = Parser(prog="samestep calibrate", description=_ABOUT)
    add_format(parser)
    form = parser.parse_args(arguments).format
    require(FRAMEWORK)
    from samestep.experiments.advising.local_machine import make_folder, store  # here: --help imports no NumPy

    make_folder()
    start = time.monotonic()
    here = calibrate()
    print(write(_document(here, str(store(here)), time.monotonic() - start), form))
    return 0


def calibrate() -> "LocalMachine":
    """Measures this machine.

    Raises:
        WorkerFailed: A process that measures died, or the machine is too busy for figures that are possible.
    """
    from samestep.common.files.reading import memory_bytes
    from samestep.experiments.advising.local_machine import make_here, odd_figure

    def measured_on(cores: "Cores", memory: float) -> "LocalMachine":
        return make_here(cores, len(os.sched_getaffinity(0)), memory_bytes(), memory)

    def measure() -> "tuple[Cores, float]":
        cores, memory = _measure_rates()
        if not odd_figure(cores, memory):
            overhead = _measure_overhead(measured_on(cores, memory))
            cores = dataclasses.replace(cores, overhead_seconds=overhead)
        return cores, memory

    return measured_on(*measure_again(measure, lambda found: odd_figure(*found)))


def measure_again(measure: Callable[[], Measured], judge: Callable[[Measured], str]) -> Measured:
    """Measures until the result is possible, at most `TRIES` times, since a busy machine can give any figure.

    Args:
        measure: Measures.
        judge: Says what is impossible about the result; "" if nothing is.

    Raises:
        WorkerFailed: The result was never possible.
    """
    odd = ""
    for _ in range(TRIES):
        if not (odd := judge(found := measure())):
            return found
    raise WorkerFailed(
        f"{odd}; measured {TRIES} times, and nothing was stored. Repeat it when nothing else runs on this machine."
    )


def _measure_rates() -> "tuple[Cores, float]":
    """Measures the cores and the memory with two processes, each on its own core if there are two."""
    from samestep.common.runtime.measured import adapter
    from samestep.common.runtime.parent.asking import Question, ask
    from samestep.common.seconds.core_time import Cores

    allowed = sorted(os.sched_getaffinity(0))
    with make_scratch() as scratch:
        ranks = [
            Question(
                module="samestep.torch_impl.core_rates",
                arguments=(str(rank), str(Path(scratch) / "store")),
                core=allowed[rank % len(allowed)],
                late=f"measuring took more than {TIMEOUT_SECONDS} s; repeat it when the machine is idle.",
                failed="a process that measures ended with exit code {code}",
            )
            for rank in range(RANKS)
        ]
        told, _ = ask(ranks, TIMEOUT_SECONDS)
    return adapter(tuple[Cores, float]).validate_python(told)


def _measure_overhead(here: "LocalMachine") -> Mapping[str, tuple[float, float]]:
    """Trains tiny models under each row; time that arithmetic and bytes do not explain is overhead, of a step and of a pass.

    It stops at a row whose overhead stays impossible, because a moment of load then made messages look slower than whole steps.
    """
    from samestep.common.runtime.parent.launcher import Launcher
    from samestep.experiments.advising.candidate_meshes import ALONE, ONE, SPLIT, WHOLE
    from samestep.experiments.advising.local_machine import odd_figure

    found = {}
    with Launcher() as launcher:
        launcher.warm([FRAMEWORK])
        for row in dict.fromkeys(row.strategy for row in (ONE, *WHOLE, *SPLIT, *ALONE)):
            for _ in range(TRIES):
                found[f"{FRAMEWORK}:{row}"] = _overhead(launcher, row, here)
                cores = dataclasses.replace(here.cores, overhead_seconds=found)
                if not odd_figure(cores, here.machine.memory_bytes_per_second):
                    break
            else:
                break
    return found


def _overhead(launcher: "Launcher", row: str, here: "LocalMachine") -> tuple[float, float]:
    """Returns the overhead of a row, per step and per layer and micro-batch. Two unknowns need models of two sizes."""
    from samestep.common.request import launch_of
    from samestep.common.run import parse
    from samestep.experiments.advising.local_times import passes, seconds_here

    points = []
    for layers in LAYERS:
        config = read_request(*_tiny(row, layers))
        run = parse(config)
        speed = launcher.run_apart(run, launch_of(config)).examples_per_second
        assert speed is not None
        points.append((passes(run), run.batch_size / speed.median - seconds_here(run, here).total))
    (few, less), (many, more) = points
    each = (more - less) / (many - few)
    return less - few * each, each


def _tiny(row: str, layers: int) -> tuple[Cell, dict[str, Scalar]]:
    """Returns the cell and the rest of the request of a model that takes next to no time to compute."""
    given: dict[str, Scalar] = {
        "workload": f"synthetic-mlp+features=8+width=8+outputs=4+layers={layers}",
        "batch_size": 8,
        "steps": STEPS,
        "parity": False,
    }
    if row in ("pp", "hybrid"):
        return Cell.parse(f"torch:{row}+schedule=1f1b+microbatches=2+mesh=pipe={RANKS}"), given
    return Cell(FRAMEWORK, row), given | ({} if row == "single" else {"devices": RANKS})


def _document(here: "LocalMachine", path: str, seconds: float) -> Document:
    cores = here.cores
    found = [
        *((f"matrix product of {size}", rate, "FLOP/s") for size, rate in cores.matmul.items()),
        ("elementwise operation and gradient", 1 / cores.element_seconds, "elements/s"),
        ("memory", here.machine.memory_bytes_per_second, "bytes/s"),
        *((f"small {name}", seconds, "s") for name, seconds in cores.latency_seconds.items()),
        *((f"large {name}", rate, "bytes/s") for name, rate in cores.exchange_bytes_per_second.items()),
        *((f"{name}, a step", step, "s") for name, (step, _) in cores.overhead_seconds.items()),
        *((f"{name}, a layer and micro-batch", each, "s") for name, (_, each) in cores.overhead_seconds.items()),
    ]
    rows = [{"quantity": quantity, "value": value, "unit": unit} for quantity, value, unit in found]

    def text() -> str:
        cells = [[quantity, _shown(value, unit)] for quantity, value, unit in found]
        line = f"Measured in {seconds:.0f} s on {here.key}: {path}. `samestep advise --machine here` reads it."
        return f"{fill(line)}\n\n{github(['quantity', 'measured'], cells)}"

    cases = [Case(quantity) for quantity, _, _ in found]
    return Document("samestep calibrate", text, {"here": here, "path": path}, rows, cases)


def _shown(value: float, unit: str) -> str:
    return f"{1e6 * value:,.3g} us" if unit == "s" else f"{short(value)} {unit}"


if __name__ == "__main__":
    run_command(main)
