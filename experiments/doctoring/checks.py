"""What is run on the GPUs: every row that can use them, in every precision that it takes."""

from collections.abc import Iterator, Mapping, Sequence

from samestep.common.catalog import strategies_of
from samestep.common.cell import Cell
from samestep.common.mesh import AXES
from samestep.common.strategy import StrategyInfo
from samestep.common.techniques.used import for_other_hardware
from samestep.experiments.doctoring.gpus import Gpu

WORKLOAD = "prose-gpt+layers=2+width=128+heads=4+context=64"
STEPS, BATCH_SIZE, ROUNDS = 20, 32, 2
"""Two rounds say whether a run repeats bit for bit."""
TIMEOUT_SECONDS = 15
"""A row is ended after so long without progress, and after ten times that in its first step; the other rows still run."""
PAIR = 2


def settings() -> dict[str, object]:
    """Returns what all checks share, as `samestep compare` is given it."""
    return {
        "workload": WORKLOAD,
        "steps": STEPS,
        "batch_size": BATCH_SIZE,
        "devices": 1,
        "repeats": ROUNDS,
        "parity": True,
        "timeout_seconds": TIMEOUT_SECONDS,
    }


def list_checks(found: Mapping[str, Sequence[Gpu]]) -> list[Cell]:
    """Returns the cells to run.

    On one device a row computes in float32, and in two bytes if it takes that. Two devices with a GPU each compute likewise, over
    NCCL; two that have to share one prove the numbers alone, in float64 over gloo.

    Args:
        found: The GPUs that each framework sees.
    """
    return [
        Cell.parse(f"{framework}:{row.name}{_sizes(row)}").extended(settings)
        for framework, gpus in found.items()
        if gpus
        for row in strategies_of(framework)
        for settings in _settings(row, len(gpus))
    ]


def _sizes(row: StrategyInfo) -> str:
    """Returns the sizes of a model that a row can cut, where not every one has what it cuts."""
    return "+experts=4" if any("stacked" in AXES[axis].cuts for axis in row.axes[:1]) else ""


def _settings(row: StrategyInfo, num_gpus: int) -> Iterator[dict[str, object]]:
    yield from _arithmetics(row)
    if row.axes and num_gpus < PAIR:
        yield {"devices": PAIR, "dtype": "float64"}
    elif row.axes:
        yield from ({"devices": PAIR, **settings} for settings in _arithmetics(row))


def _arithmetics(row: StrategyInfo) -> Iterator[dict[str, object]]:
    yield {}
    if _sizes(row):  # nobody judges a router in two bytes
        return
    for name, choices in for_other_hardware().items():
        yield from ({name: choice} for choice in choices if name not in row.refuses)
