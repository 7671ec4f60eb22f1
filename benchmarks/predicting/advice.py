"""Compares the advisor's ranking for our own workloads on this machine with a fresh comparison.

`python -m benchmarks.predicting.advice [WORKLOAD ...]` calibrates, then trains each workload under every row on two devices, in
interleaved rounds. It prints predicted and measured milliseconds of a step with the errors. For the pairs of rows it prints how
many the rounds separate, and how many of these the prediction orders correctly. Pairs that are not separated are not counted.
"""

import itertools
import statistics
import sys

import samestep
from samestep.common.cell import Cell
from samestep.common.errors import percent
from samestep.common.judging.speed_comparison import FASTER, SLOWER, compare_speeds
from samestep.common.run import parse
from samestep.experiments.advising.local_machine import LocalMachine
from samestep.experiments.advising.local_times import seconds_here
from samestep.experiments.calibrate import calibrate
from samestep.experiments.cli.command_line import read_request
from samestep.experiments.comparing.speeds import examples_per_second
from samestep.experiments.printing.text import github, percent_off

WORKLOADS = ("digits-mlp", "mnist-cnn", "prose-gpt", "flights-ranker")
CELLS = ("ddp", "zero1", "zero2", "fsdp", "tp", "pp+schedule=1f1b+microbatches=2")
ROUNDS, STEPS, DEVICES = 7, 60, 2


def main() -> None:
    """Prints every workload, then the totals."""
    here, errors, right, separated, pairs, regrets = calibrate(), [], 0, 0, 0, []
    for workload in sys.argv[1:] or WORKLOADS:
        found = _one(workload, here)
        errors += found[0]
        right, separated, pairs = right + found[1], separated + found[2], pairs + found[3]
        regrets.append(found[4])
    print(
        f"\nIn all: mean error {percent(statistics.fmean(errors))}; the rounds separate {separated} of {pairs} pairs, and "
        f"the order of {right} of these is right; the row ranked first is {percent(statistics.fmean(regrets))} slower than the "
        "fastest."
    )


def _one(workload: str, here: LocalMachine) -> tuple[list[float], int, int, int, float]:
    """Prints a workload; returns its errors, the numbers of correct, separated and all pairs, and the regret."""
    cells = [f"torch:{cell}" for cell in CELLS]
    found = samestep.compare(
        cells, workload=workload, devices=DEVICES, steps=STEPS, repeats=ROUNDS, parity=False, timeout_seconds=300
    )
    speeds = {cell: examples_per_second(found.rounds[cell]) for cell in cells if cell in found.rounds}
    if lost := [row.cell for row in found.rows if row.result is None and row.cell in cells]:
        print(f"\n{workload}: {', '.join(lost)} did not end well", flush=True)
    predicted, measured = {}, {}
    for cell, values in speeds.items():
        run = parse(read_request(Cell.parse(cell), {"workload": workload, "devices": DEVICES}))
        predicted[cell] = seconds_here(run, here).total
        measured[cell] = run.batch_size / statistics.median(value for value in values if value is not None)
    rows = [
        [c, f"{1e3 * predicted[c]:.2f}", f"{1e3 * measured[c]:.2f}", percent_off(predicted[c], measured[c])]
        for c in speeds
    ]
    print(f"\n{workload}\n\n{github(['row', 'predicted ms', 'measured ms', 'error'], rows)}\n", flush=True)
    judged = compare_speeds({(a, b): (speeds[a], speeds[b]) for a, b in itertools.combinations(speeds, 2)})
    clear = {pair: each.verdict for pair, each in judged.items() if each.verdict in (FASTER, SLOWER)}
    right = sum((predicted[a] < predicted[b]) == (verdict == FASTER) for (a, b), verdict in clear.items())
    first = min(predicted, key=lambda cell: predicted[cell])
    regret = measured[first] / min(measured.values()) - 1
    print(
        f"{len(clear)} of {len(judged)} pairs are separated, {right} of them in the right order; {first} is ranked first.",
        flush=True,
    )
    return [abs(predicted[cell] / measured[cell] - 1) for cell in speeds], right, len(clear), len(judged), regret


if __name__ == "__main__":
    main()
