"""Measures how samestep's own cost grows with parameters, steps, devices, and rows of a comparison.

`python -m benchmarks.cost.growth [--only AXIS] [--most N]` takes runs of growing size, each in its own process. It prints
a row per run: the processor seconds of the launcher and of the processes that it started, the peak memory of the launcher and
of a worker, the disk space of the run directory, and the last step that the oracle judged. Below each axis are the exponents
of the growth: the slope of the logarithms between the last two sizes, after subtracting the first size and its cost, which is
that of starting. Linear growth is 1.

Processor time is used because other work shares the cores. "by hand" is a loop written by hand with the same model, batches
and steps, in a process that has nothing else of samestep.

Runs are written to a file as soon as they are done, and none is repeated. A call continues where the previous one stopped, and
starts no run after `--minutes`. Sizes above `--most` of an axis are left out.
"""

import argparse
import contextlib
import dataclasses
import json
import math
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from benchmarks.cost.growth_table import Cost, table

BARE = "parameters, by hand"
GPT = "synthetic-gpt+context=16+layers={layers}+width={width}"
SHAPES = {100_000: (2, 64), 1_000_000: (4, 144), 10_000_000: (8, 320), 50_000_000: (12, 588), 200_000_000: (16, 1020)}
"""Approximate number of parameters of a transformer -> its layers and width."""
SMALL = ("--workload", "digits-mlp+width=32", "--batch-size", "48", "--no-evaluate")


def _parameters(size: int) -> list[str]:
    layers, width = SHAPES[size]
    workload = GPT.format(layers=layers, width=width)
    return ["run", "torch:single", "--workload", workload, "--batch-size", "2", "--steps", "6"]


def _steps(size: int) -> list[str]:
    return ["run", "torch:single", *SMALL, "--steps", str(size)]


def _devices(size: int) -> list[str]:
    return ["run", "torch:ddp", *SMALL, "--steps", "20", "--devices", str(size)]


def _rows(size: int) -> list[str]:
    cells = ",".join(f"torch:ddp+bucket_bytes={1000 + number}" for number in range(size))
    return ["compare", "--strategies", cells, *SMALL, "--steps", "4", "--devices", "2"]


AXES: Mapping[str, tuple[Callable[[int], list[str]], Sequence[int]]] = {
    "parameters": (_parameters, tuple(SHAPES)),
    "parameters, --no-parity": (lambda size: [*_parameters(size), "--no-parity"], tuple(SHAPES)),
    BARE: (_parameters, tuple(SHAPES)),
    "steps": (_steps, (1_000, 10_000, 100_000, 1_000_000)),
    "devices": (_devices, (1, 2, 4, 8, 16)),
    "rows": (_rows, (10, 30, 100, 300, 999)),  # plus the oracle; a comparison has at most 1,000 rows
}
"""Axis -> the function that returns the command for a size, and the sizes."""


def main() -> None:
    """Takes the runs that are missing, then prints the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cost.growth", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--only", choices=AXES, action="append")
    parser.add_argument("--most", type=float, default=math.inf)
    parser.add_argument("--store", type=Path, default=Path("runs/growth.jsonl"))
    parser.add_argument("--minutes", type=float, default=math.inf)
    parser.add_argument("--one", nargs=2, metavar=("AXIS", "SIZE"), help="take one run here, and print it as JSON")
    asked = parser.parse_args()
    if asked.one:
        print(json.dumps(dataclasses.asdict(take(asked.one[0], int(asked.one[1])))))
        return
    asked.store.parent.mkdir(parents=True, exist_ok=True)
    until, known = time.monotonic() + 60 * asked.minutes, read(asked.store)
    chosen = asked.only or list(AXES)
    for axis in chosen:
        for size in AXES[axis][1]:
            is_known = any((each.axis, each.size) == (axis, size) and not each.error for each in known)
            if not is_known and size <= asked.most and time.monotonic() < until:
                known.append(_apart(axis, size))
                with asked.store.open("a") as file:
                    file.write(json.dumps(dataclasses.asdict(known[-1])) + "\n")
    latest = {(each.axis, each.size): each for each in known}
    print(table([each for each in latest.values() if each.axis in chosen]))


def read(store: Path) -> list[Cost]:
    """Returns the runs in the file."""
    return [Cost(**json.loads(line)) for line in store.read_text().splitlines()] if store.exists() else []


def _apart(axis: str, size: int) -> Cost:
    """Takes a run in a separate process, whose children are then only those of the run."""
    line = [sys.executable, "-m", "benchmarks.cost.growth", "--one", axis, str(size)]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    if done.returncode:
        return Cost(axis, size, error=(done.stderr.strip().splitlines() or ["died"])[-1])
    return Cost(**json.loads(done.stdout.splitlines()[-1]))


def take(axis: str, size: int) -> Cost:
    """Takes a run in this process.

    Args:
        axis: The axis of growth.
        size: The size along that axis.
    """
    start = time.perf_counter()
    words = AXES[axis][0](size)
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "run"
        if axis == BARE:
            _bare(words)
        else:
            _command([*words, "--out", str(out)])
        results = [json.loads(path.read_text()) for path in out.rglob("result.json")]
        disk = sum(path.stat().st_size for path in Path(scratch).rglob("*") if path.is_file())
    own, others = (resource.getrusage(each) for each in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return Cost(
        axis,
        size,
        launcher_seconds=own.ru_utime + own.ru_stime,
        started_seconds=others.ru_utime + others.ru_stime,
        launcher_bytes=own.ru_maxrss * 1024,
        worker_bytes=max((row["peak_rss_bytes"] for each in results for row in each["processes"]), default=0),
        started_bytes=others.ru_maxrss * 1024,
        disk_bytes=disk,
        reached=min((each["parity"]["steps"] for each in results if each["parity"]["passed"]), default=0),
        wall_seconds=time.perf_counter() - start,
    )


def _command(words: Sequence[str]) -> None:
    """Runs a command of samestep, which must succeed."""
    from samestep import __main__ as samestep

    sys.argv = ["samestep", *words]
    try:
        with contextlib.redirect_stdout(sys.stderr):
            samestep.main()
    except SystemExit as end:
        if end.code:
            raise


def _bare(words: Sequence[str]) -> None:
    """Takes the steps of a run with the loop written by hand."""
    import torch

    from benchmarks.cost import bare_torch
    from samestep.common.batch import batches
    from samestep.common.request import RunConfig
    from samestep.common.run import parse
    from samestep.common.workload.data.dataset import load

    given = dict(zip(words[2::2], words[3::2], strict=True))
    sizes = {"batch_size": int(given["--batch-size"]), "steps": int(given["--steps"])}
    run = parse(RunConfig("torch", "single", given["--workload"], **sizes))
    torch.set_num_threads(1)
    step = bare_torch._step(bare_torch._model(run), run)
    split = load(run.workload.data)
    stream = batches(split.train_inputs, split.train_targets, run.batch_size, run.seed, 0)
    for _ in range(run.steps):
        step(next(stream))


if __name__ == "__main__":
    main()
