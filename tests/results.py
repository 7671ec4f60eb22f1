"""Results of any strategy, made from a real one without running anything."""

import dataclasses
import functools
import json
from collections.abc import Iterable
from pathlib import Path

from samestep.common.catalog import cells, strategy_info
from samestep.common.cell import Cell
from samestep.common.flags import flags
from samestep.common.request import RunConfig
from samestep.common.runtime.directory import write_json
from samestep.common.runtime.records import RunResult, Throughput, load_result
from samestep.experiments.comparing.speeds import MeasuredRow

REAL = Path(__file__).parent / "data" / "ddp"
EVERY_CELL = cells()

real = functools.cache(load_result)


def made(
    cell: str, rate: tuple[float, float, float] | None = (16_239.0, 9_832.0, 21_230.0), **changes: object
) -> RunResult:
    """A result of a cell: everything that nobody asks to change is as torch:ddp measured it on two devices.

    Args:
        cell: As in `torch:pp+microbatches=8`.
        rate: Median, slowest and fastest window; None if there is none.
        **changes: Fields of the result; `judged` is the number of steps that were judged, None for none.
    """
    base = real(REAL)
    config = Cell.parse(cell).apply_to(RunConfig())
    info = strategy_info(config.framework, config.strategy)
    defaults = {name: field.default for name, field in flags(info.options).items()}
    is_oracle = config.framework == "numpy"
    judged = changes.pop("judged", None if is_oracle else len(base.losses))
    parity = dataclasses.replace(base.parity, passed=None if judged is None else True, steps=judged or 0)
    mesh = config.mesh or (f"{info.axes[0]}=2" if info.axes else "data=1")
    values = {
        "framework": config.framework,
        "strategy": info.name,
        "mesh": mesh,
        "dtype": "float64" if is_oracle else "float32",
        "emulation": info.emulation,
        "examples_per_second": rate and Throughput(*rate, windows=20),
        "parity": parity,
        "config": dataclasses.replace(
            base.config,
            framework=config.framework,
            strategy=info.name,
            devices=2 if info.axes else 1,
            mesh=mesh,
            dtype="float64" if is_oracle else "float32",
            options=defaults | config.options,
            techniques=config.techniques,
        ),
    }
    return dataclasses.replace(base, **values | changes)


def alone(results: Iterable[RunResult]) -> list[MeasuredRow]:
    """The rows of runs, each of which is the only round of its row."""
    return [MeasuredRow.of(each) for each in results]


def leave(directory: Path, result: RunResult) -> Path:
    """Writes what a finished run leaves: its request, its losses in two windows, and its result.

    Args:
        directory: Of the run.
        result: What it left.
    """
    directory.mkdir(parents=True, exist_ok=True)
    write_json(directory / "config.json", result.config)
    lines, first = [], result.first_step
    for losses in filter(None, (result.losses[:1], result.losses[1:])):
        first += len(losses)
        lines.append(json.dumps({"step": first, "seconds": 0.5 * len(losses), "losses": losses}))
    if lines:
        (directory / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    write_json(directory / "result.json", result)
    return directory


def deviating(result: RunResult, deviation: float) -> RunResult:
    """The result with another largest deviation.

    Args:
        result: Of a run that was judged.
        deviation: Of the loss, relative.
    """
    return dataclasses.replace(result, parity=dataclasses.replace(result.parity, max_relative_loss=deviation))
