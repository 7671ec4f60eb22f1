"""Measures how compressed exchanges affect what is learned, and below which bandwidth they pay off.

`python -m benchmarks.techniques.compression learned` trains each workload with each method, in float32 on two devices, and
prints the metric on held-out examples: the median of five seeds, and by how much it is worse than without compression. That
should be at most one point, which is 0.01 of accuracy or 1 % of the bits per token.

`python -m benchmarks.techniques.compression pays` prints the bandwidth below which int8 makes a step faster, predicted and
measured. For the prediction, int8 saves some bytes and costs some seconds, so both steps take equally long at the bandwidth at
which these bytes take these seconds. The seconds are found at one much lower bandwidth, after subtracting the time of the bytes.
The loopback would not show them: over links, bytes travel while others are still copied and added up, and more so in a long
message than in a short one. For the measurement, both cells run over links around that bandwidth, and a straight line is fitted
to their difference over the inverse of the bandwidth; it is zero at the result. The narrow link is measured in the same rounds,
so anything that slows the machine slows both. The seconds of a step are those of the fastest window of all rounds, because other
work on the machine only makes a window longer.
"""

import argparse
import statistics
from collections.abc import Sequence

import numpy as np

from samestep.common.cell import Cell
from samestep.common.flag_words import read_bandwidth
from samestep.common.judging.metrics import direction_of
from samestep.common.request import RunConfig, launch_of
from samestep.common.run import parse
from samestep.common.runtime.parent.launcher import Launcher
from samestep.common.runtime.records import RunResult
from samestep.common.techniques.compress.flag import COMPRESSIONS
from samestep.experiments.printing.text import percent_off

WORKLOADS = ("digits-mlp", "mnist-cnn", "prose-gpt")
METHODS = (*COMPRESSIONS, "powersgd+compress_rank=16", "powersgd+compress_rank=16+compress_warmup_steps=20")
"""The methods; PowerSGD with its default rank of 4, and with the rank that stays within a point on all workloads."""
SEEDS = 5
PAIRS = {
    "torch:ddp": ("torch:ddp+overlap=false", "torch:ddp+overlap=false+compress=int8"),
    "tf:multi_worker_mirrored": ("tf:multi_worker_mirrored", "tf:multi_worker_mirrored+compress=int8"),
}
WORKLOAD = "synthetic-mlp+layers=3+width=1024"
AROUND = (0.7, 0.85, 1.0, 1.2, 1.5)
"""The measured bandwidths, as multiples of the predicted one."""
NARROW = 6
"""The divisor of the bandwidth below which int8 would pay off according to the loopback; it gives the narrow link."""
ROUNDS, STEPS = 5, 61


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints one of the two tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("learned", "pays"))
    parser.add_argument("--workloads", nargs="*", default=WORKLOADS)
    parser.add_argument("--cells", nargs="*", default=["torch:ddp"])
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    given = parser.parse_args(arguments)
    with Launcher() as launcher:
        if given.what == "learned":
            learned(launcher, given.cells, given.workloads, given.seeds)
        else:
            pays(launcher, given.cells, given.rounds)


def _take(launcher: Launcher, cell: str, **fields: object) -> RunResult:
    asked = Cell.parse(cell).apply_to(RunConfig(devices=2, parity=False, timeout_seconds=300.0, **fields))
    return launcher.run_apart(parse(asked), launch_of(asked))


def learned(launcher: Launcher, cells: Sequence[str], workloads: Sequence[str], seeds: int) -> None:
    """Prints the metric of each workload with each method.

    Args:
        launcher: The launcher that starts the runs.
        cells: The cells without compression.
        workloads: The names of the workloads.
        seeds: The number of seeds.
    """
    print(f"| row, workload | none | {' | '.join(METHODS)} |\n|{'---|' * (2 + len(METHODS))}", flush=True)
    for cell in cells:
        for workload in workloads:
            medians = []
            for method in ("", *(f"+compress={method}" for method in METHODS)):
                runs = [_take(launcher, cell + method, workload=workload, seed=seed) for seed in range(seeds)]
                medians.append(statistics.median(run.metric_value for run in runs))
                sign = -1 if direction_of(runs[0].metric_name) == "lower" else 1
                is_share = runs[0].metric_name == "accuracy"
            plain, *others = medians
            points = [100 * sign * (value - plain) / (1 if is_share else plain) for value in others]
            columns = [f"{value:.4f} ({point:+.2f})" for value, point in zip(others, points, strict=True)]
            print(f"| {cell}, {workload} | {plain:.4f} | {' | '.join(columns)} |", flush=True)


def pays(launcher: Launcher, cells: Sequence[str], rounds: int) -> None:
    """Prints the bandwidth below which int8 pays off, predicted and measured.

    Args:
        launcher: The launcher that starts the runs.
        cells: Keys of PAIRS.
        rounds: How often each run is taken.
    """
    print(
        "| row | int8 saves | and takes longer by | pays below, predicted | measured | off by |\n|---|---|---|---|---|---|"
    )
    for cell in cells:
        results, seconds = _compared(launcher, cell, [None], rounds)
        plain, compressed = (result.predicted.sent_bytes_per_step / 2 for result in results)  # in each of two processes
        bits = 8 * (plain - compressed)
        narrow = f"{round(bits / _longer(seconds[None]) / NARROW / 1e6)}mbit"
        first = bits / (_longer(_compared(launcher, cell, [narrow], rounds)[1][narrow]) + _seconds(bits, narrow))
        around = [f"{round(factor * first / 1e6)}mbit" for factor in AROUND]
        _, seconds = _compared(launcher, cell, [narrow, *around], rounds)
        longer = _longer(seconds.pop(narrow)) + _seconds(bits, narrow)
        predicted = bits / longer
        inverse = [_seconds(1.0, bandwidth) for bandwidth in around]
        slope, start = np.polyfit(inverse, [-_longer(pair) for pair in seconds.values()], 1)
        measured = -slope / start
        print(
            f"| {cell} | {bits / 8 / 2**20:.1f} MiB | {longer * 1e3:.1f} ms | {predicted / 1e6:.0f} Mbit/s | "
            f"{measured / 1e6:.0f} Mbit/s | {percent_off(predicted, measured)} |",
            flush=True,
        )


def _longer(pair: tuple[float, float]) -> float:
    """Returns by how many seconds a step takes longer with int8."""
    plain, compressed = pair
    return compressed - plain


def _seconds(bits: float, bandwidth: str) -> float:
    return bits / read_bandwidth(bandwidth)


def _compared(
    launcher: Launcher, cell: str, bandwidths: Sequence[str | None], rounds: int
) -> tuple[list[RunResult], dict[str | None, tuple[float, float]]]:
    """Runs both cells over links, alternately; returns the last results, and bandwidth -> seconds of a step without and with."""
    found: dict[tuple[str | None, str], float] = {}
    results: dict[str, RunResult] = {}
    for _ in range(rounds):
        for bandwidth in bandwidths:
            for each in PAIRS[cell]:
                result = _take(launcher, each, workload=WORKLOAD, steps=STEPS, bandwidth=bandwidth, batch_size=32)
                assert result.examples_per_second is not None
                fastest = result.global_batch_size / (result.examples_per_second.fastest_window or 0)
                results[each] = result
                found[bandwidth, each] = min(found.get((bandwidth, each), fastest), fastest)
    seconds = {
        bandwidth: (found[bandwidth, one], found[bandwidth, other])
        for bandwidth in bandwidths
        for one, other in [PAIRS[cell]]
    }
    return [results[each] for each in PAIRS[cell]], seconds


if __name__ == "__main__":
    main()
