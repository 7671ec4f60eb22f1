"""Measures what our layer costs: a row against a bare loop with the same API, model, batches, threads and cores.

`python -m benchmarks.cost.overhead [torch:ddp ...] [--pairs N]` prints a row per strategy and workload: the time of the bare loop
divided by ours, as the median over interleaved pairs with its 95 % interval. At 1, our layer is free. It should be at least
0.97 for `single` on prose-gpt, 0.90 on digits-mlp, and 0.95 for the others on prose-gpt. `--model` measures a user model,
`benchmarks/cost/net.py`, against a loop around the module that the user's function returns; it should be at least 0.95.

Both loops run alternately in the same processes, so both find the machine in the same state.
"""

import argparse
import dataclasses
import importlib
import itertools
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.intervals import median_interval
from samestep.common.batch import batches
from samestep.common.catalog import strategy_info
from samestep.common.cell import Cell
from samestep.common.request import FRAMEWORKS, RunConfig
from samestep.common.run import parse
from samestep.common.runtime.parent.launcher import Launcher
from samestep.common.runtime.parent.processes.network import HOST, free_ports
from samestep.common.runtime.process_file import ProcessFile
from samestep.common.runtime.topology import fill_in, own_index
from samestep.common.runtime.worker import loop
from samestep.common.runtime.worker.loop import train
from samestep.common.runtime.worker.traffic import Traffic
from samestep.common.runtime.worker.worker import pin
from samestep.common.strategy import Run
from samestep.common.workload.data.casting import in_dtype

OWN = "net.py"
"""The user model, in place of the name of a workload."""
PAIRS = {"prose-gpt": 15, "digits-mlp": 31, OWN: 15}
"""The number of pairs; short workloads have more, because they scatter more."""
STEPS = {"prose-gpt": 61, "digits-mlp": 601, OWN: 61}
WINDOW_STEPS = 10
"""The steps of a window in a run of the default length; what is reported is gathered once per window."""
BARE = {
    "torch:single": ["prose-gpt", "digits-mlp"],
    "torch:ddp": ["prose-gpt"],
    "torch:fsdp": ["prose-gpt"],
    "torch:pp": ["prose-gpt"],
    "tf:single": ["prose-gpt", "digits-mlp"],
    "tf:mirrored": ["prose-gpt"],
    "tf:multi_worker_mirrored": ["prose-gpt"],
}


def main() -> None:
    """Measures every row, each in its own processes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cells", nargs="*")
    parser.add_argument("--model", action="store_true", help="a user's own model")
    parser.add_argument("--pairs", type=int, default=0, help="how many of each row; else as many as it needs")
    asked = parser.parse_args()
    print("| strategy | workload | bare / ours | 95 % | ours, ms a step |\n|---|---|---|---|---|", flush=True)
    own = asked.model
    cells = asked.cells or (["torch:single", "torch:ddp"] if own else list(BARE))
    with Launcher() as launcher:
        described = launcher.describe(_request(cells[0], OWN)).described or "" if own else ""
        for cell in cells:
            for workload in [OWN] if own else BARE[cell]:
                _start(cell, workload, described, asked.pairs or PAIRS[workload])


def _start(cell: str, name: str, described: str, pairs: int) -> None:
    run = _parse(cell, name, described)
    specs = run.strategy.topology(run)
    addresses = [(HOST, port) for port in free_ports(len(specs))]
    command = [sys.executable, "-m", "benchmarks.cost.overhead", "--measure", cell, name, described, str(pairs)]
    processes = [
        subprocess.Popen(command, env={**os.environ, **fill_in(spec, addresses)}, stderr=subprocess.DEVNULL)
        for spec in specs
    ]
    codes = [process.wait() for process in processes]
    if any(codes):
        print(f"| {cell} | {name} | failed, exit codes {codes} | | |", flush=True)


def _request(cell: str, name: str) -> RunConfig:
    file = Path(__file__).with_name(OWN)
    own = {"model": str(file), "data": f"{file}:tokens", "batch_size": 32}
    config = Cell.parse(cell).apply_to(RunConfig(**own) if name == OWN else RunConfig(workload=name))
    return dataclasses.replace(config, devices=2 if strategy_info(config.framework, config.strategy).axes else 1)


def _parse(cell: str, name: str, described: str) -> Run:
    return parse(dataclasses.replace(_request(cell, name), described=described or None))


def measure(cell: str, name: str, described: str, count_of_pairs: str) -> None:
    """Runs one process of one row on one workload: warms up both loops, then times them alternately; the first process prints.

    Args:
        cell: The row.
        name: A key of STEPS.
        described: The folder with the description of the user model, or "".
        count_of_pairs: The number of pairs.
    """
    run = _parse(cell, name, described)
    pin(run)
    specs = run.strategy.topology(run)
    rank = own_index(specs, os.environ)
    strategy = importlib.import_module(f"{FRAMEWORKS[run.framework]}.strategies.{run.strategy.name}")
    program = strategy.build(run)
    loops = importlib.import_module(f"benchmarks.cost.bare_{run.framework}")
    step = getattr(loops, run.strategy.name)(run, program)
    timed = dataclasses.replace(run, steps=STEPS[name])
    data = in_dtype(run.workload.data.load(), run.dtype)
    count = STEPS[name]
    timed = dataclasses.replace(run, steps=count)
    loop.TIMED_WINDOWS = count // WINDOW_STEPS
    streams = [batches(data.train_inputs, data.train_targets, run.batch_size, run.seed) for _ in range(2)]
    file = ProcessFile(Path(tempfile.mkdtemp()), f"rank-{rank}", rank)

    def ours() -> float:
        # Our whole loop with windows, losses and files; the first window is a single step.
        start = time.perf_counter()
        train(program, timed, streams[0], 0, file, Traffic(file, {}, alone=len(specs) == 1))
        return time.perf_counter() - start

    def bare() -> float:
        start = time.perf_counter()
        losses = [step(batch) for batch in itertools.islice(streams[1], count)]
        float(losses[-1])
        return time.perf_counter() - start

    pairs = _interleaved(ours, bare, int(count_of_pairs))
    if rank == 0:
        ratio, low, high = median_interval([other / own for own, other in pairs])
        milliseconds = sorted(own for own, _ in pairs)[len(pairs) // 2] / count * 1e3
        print(f"| {cell} | {name} | {ratio:.3f} | {low:.3f} .. {high:.3f} | {milliseconds:.2f} |", flush=True)
    program.close()


def _interleaved(ours: Callable[[], float], bare: Callable[[], float], count: int) -> list[tuple[float, float]]:
    ours(), bare()
    pairs = []
    for number in range(count):
        if number % 2:
            own, other = ours(), bare()
        else:
            other, own = bare(), ours()
        pairs.append((own, other))
    return pairs


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        measure(*sys.argv[2:])
        sys.stdout.flush()
        os._exit(0)  # both frameworks sometimes crash or hang during teardown
    main()
