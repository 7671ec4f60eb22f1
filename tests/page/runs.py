"""Run directories that are made up, with everything on them that a page can show."""

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path

from samestep.common.cell import Cell
from samestep.common.errors import Unavailable, WorkerFailed
from samestep.common.judging.parity import deviation
from samestep.common.runtime.directory import open_run, write_error, write_json
from samestep.common.runtime.records import RunResult
from samestep.common.runtime.step_parts import PARTS, StepParts
from samestep.experiments.comparing.stored import run_directory
from tests.experiments.comparisons import keep
from tests.results import leave, made

RATES = {"torch:ddp": 1000.0, "torch:fsdp": 1400.0, "tf:mirrored": 1010.0, "torch:dp": 300.0, "torch:c10d": 900.0}
UNMEASURED = ("torch:dp",)
"""Rows whose activations nobody measured."""
UNTOLD = ("torch:dp",)
"""Rows whose step has no parts."""
SHARES = (0.4, 0.05, 0.3, 0.1, 0.15)
"""Of the parts of a step."""
NOISE = (0.97, 1.04, 1.0, 1.02, 0.98)
MARKUP = "rank-1 died: <script>alert('log')</script> <b>bold</b> & \x1b[31m\x00 'quoted' \"twice\""
"""What the log of a process may hold."""


def trained(cell: str, rate: float, wrong_from: int | None = None) -> RunResult:
    """A result with losses, their deviations and a speed of its own.

    Args:
        cell: As in `torch:ddp`.
        rate: Examples per second.
        wrong_from: The step from which on its losses are not the reference's; None if it takes the same step.
    """
    result = made(cell, rate=(rate, 0.9 * rate, 1.2 * rate))
    if result.framework == "numpy":
        return result
    seed = sum(map(ord, cell))
    noise = [2e-7 * math.sin(seed + 7 * step) ** 2 * (step % 5 > 0) for step in range(len(result.losses))]
    noise = [0.02 if wrong_from is not None and step >= wrong_from else each for step, each in enumerate(noise)]
    losses = tuple(loss * (1 + each) for loss, each in zip(result.losses, noise, strict=True))
    pairs = zip(losses, result.losses, strict=True)
    deviations = tuple(deviation(loss, wanted, result.dtype) for loss, wanted in pairs)
    parity = dataclasses.replace(
        result.parity,
        deviations=deviations,
        max_relative_loss=max(deviations),
        passed=wrong_from is None,
        first_bad_step=wrong_from,
        reason="" if wrong_from is None else f"step {wrong_from}: every gradient is 2.000 x the oracle's",
    )
    more = sum(map(ord, cell))
    held = [
        dataclasses.replace(
            row,
            gradients_bytes=row.gradients_bytes + more,
            activations_bytes=None if cell in UNMEASURED else 30_000 + row.rank,
        )
        for row in result.processes
    ]
    seconds = result.global_batch_size / rate
    parts = dict(zip(PARTS, (share * seconds for share in SHARES), strict=True))
    if result.framework == "tf":
        parts |= {"computing_seconds": 0.45 * seconds, "update_seconds": None}
    told = None if cell in UNTOLD else StepParts(**parts, steps=20, own_step_seconds=1.1 * seconds)
    timed = {"step_seconds_median": seconds, "step_parts": told}
    return dataclasses.replace(result, losses=losses, parity=parity, processes=held, **timed)


def comparison(directory: Path) -> Path:
    """A comparison of five rounds: rows that are faster, slower, not separated, emulated, wrong, failed and unavailable."""
    rows: dict[str, Sequence[RunResult]] = {"numpy:oracle": [trained("numpy:oracle", 5000.0)]}
    for cell, rate in RATES.items():
        wrong = 12 if cell == "torch:c10d" else None
        noise = NOISE if wrong is None else NOISE[:1]
        shift = 2 * len(cell)
        rates = [rate * noise[(number + shift) % len(noise)] for number in range(len(noise))]
        rows[cell] = [trained(cell, each, wrong) for each in rates]
    keep(directory, rows, strategies=[*RATES, "tf:dtensor", "tf:parameter_server"], reference="torch:ddp")
    for cell, error in (
        ("tf:dtensor", WorkerFailed(MARKUP)),
        ("tf:parameter_server", Unavailable("it is not installed")),
    ):
        run = open_run(run_directory(directory, Cell.parse(cell), 1), made(cell).config)
        write_error(run, "rank-1", error)
    return directory


def scaling(directory: Path) -> Path:
    """A comparison of one, two and four devices, on as many cores."""
    rows: dict[str, Sequence[RunResult]] = {"numpy:oracle": [trained("numpy:oracle", 5000.0)]}
    for strategy, growth in (("torch:ddp", 1.8), ("tf:mirrored", 1.5), ("torch:dp", 1.2)):
        for power, devices in enumerate((1, 2, 4)):
            noise = (*NOISE[power:], *NOISE[:power])
            rates = [1000.0 * growth**power * each for each in noise]
            results = [trained(strategy, rate) for rate in rates]
            config = dataclasses.replace(results[0].config, devices=devices, mesh=f"data={devices}")
            rows[f"{strategy}+devices={devices}"] = [
                dataclasses.replace(result, config=config, mesh=config.mesh, cores=4) for result in results
            ]
    return keep(directory, rows)


def trace(directory: Path, times: int = 1) -> None:
    """What `--trace` leaves in a run directory: a step of one device, with a transfer.

    Args:
        directory: Of the run.
        times: How many times as long everything takes.
    """
    lanes = ("data", "compute", "communicate", "idle")
    named = [("process_name", 0, "rank-0"), *(("thread_name", number, lane) for number, lane in enumerate(lanes))]
    did = [(0, 0, 5, "data"), (1, 5, 400, "forward"), (1, 405, 900, "backward"), (2, 600, 900, "all_reduce")]
    events = [{"ph": "M", "pid": 0, "tid": lane, "name": kind, "args": {"name": name}} for kind, lane, name in named]
    events += [
        {
            "ph": "X",
            "pid": 0,
            "tid": lane,
            "ts": times * start,
            "dur": times * length,
            "name": name,
            "args": {"step": 0},
        }
        for lane, start, length, name in did
    ]
    write_json(directory / "trace.json", {"traceEvents": events})


def single(directory: Path, result: RunResult) -> Path:
    """One run on its own."""
    return leave(directory, result)
