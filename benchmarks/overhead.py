"""What our layer costs: `single` against a bare loop of the same framework, model, batches, threads and core.

`python -m benchmarks.overhead` prints a row per framework and workload: the bare loop's time over ours, the median over
interleaved pairs with its 95 % interval. 1 is free; the bars are 0.97 on prose-gpt and 0.90 on digits-mlp.
"""

import importlib
import itertools
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from common.batch import batches
from common.config import FRAMEWORKS, RunConfig
from common.evidence.statistics import median_interval
from common.runtime.check import check
from common.runtime.loop import in_dtype, train
from common.runtime.records import ProcessRecord
from common.runtime.worker import pin

PAIRS = 21
STEPS = {"prose-gpt": 4, "digits-mlp": 150}


def main() -> None:
    """Every pair, each framework in a process of its own."""
    print("| framework | workload | bare / ours | 95 % | ours, ms a step |\n|---|---|---|---|---|", flush=True)
    for framework, workload in itertools.product(("torch", "tf"), STEPS):
        subprocess.run(
            [sys.executable, "-m", "benchmarks.overhead", framework, workload], check=True, stderr=subprocess.DEVNULL
        )


def measure(framework: str, name: str) -> None:
    """One framework on one workload: warms both up, then times them in turn."""
    config, workload = check(RunConfig(framework=framework, workload=name, parity=False))
    pin(config)
    program = importlib.import_module(f"{FRAMEWORKS[framework]}.strategies.single").build(workload, config)
    step = importlib.import_module(f"benchmarks.bare_{framework}").bare(workload, config)
    data = in_dtype(workload.data.load(), config.dtype)
    size, count = config.batch_size or 0, STEPS[name]
    streams = [batches(data.train_inputs, data.train_targets, size, config.seed) for _ in range(2)]
    record = ProcessRecord(Path(tempfile.mkdtemp()), "rank-0", 0)

    def ours() -> float:
        # Our own loop, windows, losses, records and all; two windows, of which the first is a single step.
        start = time.perf_counter()
        train(program, streams[0], 0, count, record)
        return time.perf_counter() - start

    def bare() -> float:
        start = time.perf_counter()
        losses = [step(b.inputs[b.indices], b.targets[b.indices]) for b in itertools.islice(streams[1], count)]
        float(losses[-1])
        return time.perf_counter() - start

    pairs = _interleaved(ours, bare)
    ratio, low, high = median_interval([other / own for own, other in pairs])
    milliseconds = sorted(own for own, _ in pairs)[PAIRS // 2] / count * 1e3
    print(f"| {framework} | {name} | {ratio:.3f} | {low:.3f} .. {high:.3f} | {milliseconds:.2f} |", flush=True)


def _interleaved(ours: Callable[[], float], bare: Callable[[], float]) -> list[tuple[float, float]]:
    ours(), bare()
    pairs = []
    for number in range(PAIRS):
        if number % 2:
            own, other = ours(), bare()
        else:
            other, own = bare(), ours()
        pairs.append((own, other))
    return pairs


if __name__ == "__main__":
    measure(*sys.argv[1:]) if len(sys.argv) > 1 else main()
