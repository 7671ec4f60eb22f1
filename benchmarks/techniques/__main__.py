"""Measures what each technique costs and gains: a row with it against the same row without.

`python -m benchmarks.techniques [torch:ddp+recompute=true ...]` prints a row per cell: the ratios with to without the technique
of the seconds of a step, the bytes of activations, and the bytes on the wire, and the seconds that it adds before the first step.
Speeds are ratios of consecutive runs; the table has the median, smallest and largest of `--pairs` of them. Bytes are measured
once. If a row reports it, the table also has the share of communication that overlapped the backward pass.
"""

import argparse
import dataclasses
import statistics
from collections.abc import Mapping, Sequence

from samestep.common.cell import Cell
from samestep.common.errors import percent
from samestep.common.request import RunConfig, launch_of
from samestep.common.run import parse
from samestep.common.runtime.parent.launcher import Launcher
from samestep.common.runtime.records import RunResult

CELLS = (
    "torch:ddp+accumulation_steps=4",
    "torch:fsdp+accumulation_steps=4",
    "tf:mirrored+accumulation_steps=4",
    "tf:parameter_server+accumulation_steps=4",
    "torch:ddp+clip_norm=1",
    "torch:fsdp+clip_norm=1",
    "tf:mirrored+clip_norm=1",
    "torch:ddp+learning_rate_schedule=cosine+warmup_steps=10",
    "tf:mirrored+learning_rate_schedule=cosine+warmup_steps=10",
    "torch:single+precision=bf16",
    "torch:fsdp+precision=bf16",
    "tf:mirrored+precision=bf16",
    "torch:single+recompute=true",
    "torch:fsdp+recompute=true",
    "torch:tp+recompute=true",
    "tf:mirrored+recompute=true",
    "torch:single+compile=true",
    "torch:ddp+compile=true",
    "tf:mirrored+compile=true",
    "torch:ddp+overlap=false",
    "tf:mirrored+overlap=true",
    "torch:ddp+compress=bf16",
    "torch:ddp+compress=int8",
    "torch:ddp+compress=powersgd",
    "tf:multi_worker_mirrored+compress=int8",
)
WORKLOAD = "prose-gpt"
PAIRS = 5
STEPS = 61
HEADINGS = ("with the technique", "seconds a step", "activations", "sent", "first step, s", "overlapped")


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures every cell, and prints its row as soon as it is known."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cells", nargs="*", default=CELLS)
    parser.add_argument("--workload", default=WORKLOAD)
    parser.add_argument("--pairs", type=int, default=PAIRS)
    parser.add_argument("--steps", type=int, default=STEPS)
    given = parser.parse_args(arguments)
    print(f"| {' | '.join(HEADINGS)} |\n|{'---|' * len(HEADINGS)}", flush=True)
    with Launcher() as launcher:
        for cell in given.cells:
            pairs = [
                (_take(launcher, Cell.parse(cell).name, given), _take(launcher, cell, given))
                for _ in range(given.pairs)
            ]
            print(f"| {' | '.join((cell, *row(pairs)))} |", flush=True)


def _take(launcher: Launcher, cell: str, given: argparse.Namespace) -> RunResult:
    asked = Cell.parse(cell).apply_to(RunConfig(workload=given.workload, steps=given.steps, parity=False))
    devices = None if asked.strategy == "single" else 2
    asked = dataclasses.replace(asked, devices=devices, timeout_seconds=120.0)
    return launcher.run_apart(parse(asked), launch_of(asked))


def row(pairs: Sequence[tuple[RunResult, RunResult]]) -> list[str]:
    """Returns the cells of a row, as text.

    Args:
        pairs: Pairs of runs without and with a technique.
    """
    slower = sorted(with_it.step_seconds_median / plain.step_seconds_median for plain, with_it in pairs)
    first = statistics.median(with_it.compile_seconds - plain.compile_seconds for plain, with_it in pairs)
    plain, with_it = pairs[-1]
    overlapped = [_overlapped(result.processes[0].measures) for result in (plain, with_it)]
    return [
        f"{statistics.median(slower):.2f} ({slower[0]:.2f} to {slower[-1]:.2f})",
        _ratio(*(result.processes[0].activations_bytes for result in (plain, with_it))),
        _ratio(plain.sent_bytes, with_it.sent_bytes),
        f"{first:+.1f}",
        " to ".join(percent(each) for each in overlapped if each is not None) if None not in overlapped else "",
    ]


def _overlapped(measures: Mapping[str, float]) -> float | None:
    """Returns the share of communication that was overlapped; None if the row does not report it."""
    seconds = measures.get("communication_seconds")
    return measures["overlap_seconds"] / seconds if seconds else None


def _ratio(plain: float | None, with_it: float | None) -> str:
    """Returns the ratio with to without a technique; "" if either is unknown, for example because a compiler decides."""
    return f"{with_it / plain:.2f}" if plain and with_it is not None else ""


if __name__ == "__main__":
    main()
