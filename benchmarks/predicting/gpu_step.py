"""Measures what a step of a GPT takes on one GPU of this machine, next to the prediction of `samestep advise`.

`python -m benchmarks.predicting.gpu_step` trains models of the sizes of GPT-2 on random tokens in bf16 and prints a table. No
constant of the prediction was fitted to these steps. Each model is trained twice, alternately, and the faster median counts.
"""

import argparse
import itertools

import samestep
from samestep.common.run import parse
from samestep.common.runtime.records import RunResult
from samestep.common.seconds.machine import Machine
from samestep.experiments.advising.prediction import needed_bytes
from samestep.experiments.advising.step_times import candidate_of, seconds_of
from samestep.experiments.doctoring.checks import find_gpus
from samestep.experiments.printing.text import github, percent_off, size

CELL = "torch:ddp"
SIZES = {
    "124 M": ("layers=12+width=768+heads=12", 8),
    "124 M, batch 32": ("layers=12+width=768+heads=12", 32),
    "355 M": ("layers=24+width=1024+heads=16", 8),
    "774 M": ("layers=36+width=1280+heads=20", 8),
}
"""The sizes of GPT-2, and the number of examples in a step."""
REST = "+context=1024+vocabulary=50304+tied=true"
ROUNDS, STEPS = 2, 12


def predicted_seconds(result: RunResult, machine: Machine) -> float:
    """Returns the seconds that the advisor predicts for a step on one GPU.

    Args:
        result: The result of the run.
        machine: The machine with the GPU.
    """
    candidate = candidate_of(parse(result.config), max(map(needed_bytes, result.predicted.footprints)))
    assert candidate is not None
    return seconds_of(candidate, machine).total


def main() -> None:
    """Trains each model and prints the seconds of its steps."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", help="models whose name has this")
    chosen = {name: each for name, each in SIZES.items() if (parser.parse_args().only or "") in name}
    gpu, *_ = find_gpus()["torch"]
    assert gpu.machine, f"no machine file is about a {gpu.name}; write one as docs/advising.md has it"
    found: dict[str, list[RunResult]] = {name: [] for name in chosen}
    for _, (name, (sizes, batch)) in itertools.product(range(ROUNDS), chosen.items()):
        workload = f"synthetic-gpt+{sizes}{REST}"
        settings = {"devices": 1, "batch_size": batch, "steps": STEPS, "precision": "bf16", "parity": False}
        found[name].append(samestep.run(CELL, workload=workload, **settings))  # pyrefly: ignore
    rows = []
    for name, results in found.items():
        best = min(results, key=lambda each: each.step_seconds_median)
        seconds, said = best.step_seconds_median, predicted_seconds(best, gpu.machine)
        held = best.processes[0].allocated_peak_bytes
        memory = max(map(needed_bytes, best.predicted.footprints))
        rows.append(
            [
                name,
                f"{1000 * seconds:.1f}",
                f"{1000 * said:.1f}",
                percent_off(said, seconds),
                size(held),
                size(memory),
            ]
        )
    print(f"{gpu.name}, as {gpu.machine.title}\n")
    print(github(["model", "ms", "predicted", "off", "tensors", "predicted"], rows, 120))


if __name__ == "__main__":
    main()
