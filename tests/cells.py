"""Test-sized workloads, and one way to run a cell on them."""

from typing import Any

import pytest

from samestep.common.catalog import catalogue, strategy_info
from samestep.common.cell import Cell
from samestep.common.mesh import AXES
from samestep.common.strategy import StrategyInfo
from samestep.common.workload.optimizers.table import OPTIMIZERS, mistakes_of

SIZED = {
    "mlp": "digits-mlp+width=32",
    "cnn": "mnist-cnn+filters=4+hidden=16",
    "transformer": "prose-gpt+layers=2+width=32+context=16",
    "ranker": "flights-ranker+embedding=4+hash_buckets=512",
}
SHALLOW = f"{SIZED['mlp']}+layers=2"
"""The mlp for tests of TensorFlow in which one hidden layer says what more would: each layer is traced anew."""
USUAL_OPTIMIZERS = ("sgd", "adamw")
"""What every row and every product trains with; the others are in `tests/parity/test_optimizers.py`."""
OWNERS = {wrong.__name__: optimizer for optimizer in OPTIMIZERS for wrong in mistakes_of(optimizer)}
"""Mutant -> the optimizer whose update it changes."""
REGRESSION = "synthetic-regression+width=32"
"""The mlp on real targets."""


def slow(*values: str) -> list[Any]:
    """Parameters of a test that only `make test-slow` takes; the others stand for their step."""
    return [pytest.param(value, marks=pytest.mark.slow) for value in values]


def takes_slow_tests(request: pytest.FixtureRequest) -> bool:
    """Whether any of the tests that are to be run is a slow one, for which a fixture has to make more."""
    return any(item.get_closest_marker("slow") for item in request.session.items)


def optimizers_of(mutant: str) -> tuple[str, ...]:
    """The optimizers with which a mutant is tried: its own, or both of the usual ones."""
    return (OWNERS[mutant],) if mutant in OWNERS else USUAL_OPTIMIZERS


def _cuts(row: StrategyInfo) -> set[str]:
    """What a row cuts on several devices unless it is given a mesh."""
    return {cut for axis in row.axes[:1] for cut in AXES[axis].cuts}


def takes(row: StrategyInfo, model: str) -> bool:
    """Whether a row trains a model of SIZED: those that cut sequences or experts take the one that may have some."""
    return model == "transformer" or not _cuts(row) & {"positions", "stacked"}


def needed(row: StrategyInfo) -> str:
    """What a row asks of the sizes of a model: experts, where it cuts them."""
    return "+experts=4+balance=0" if "stacked" in _cuts(row) else ""


def sized(row: StrategyInfo, model: str) -> str:
    """A workload of SIZED, with what a row needs."""
    return SIZED[model] + needed(row)


def traced_once(framework: str, workload: str) -> str:
    """A workload of SIZED, with one block or one hidden layer for TensorFlow, which takes long to trace another one.

    It cuts no model by blocks or layers.

    Args:
        framework: Of the row that trains it.
        workload: Of any framework.
    """
    if framework != "tf":
        return workload
    once = workload.replace(SIZED["mlp"], f"{SIZED['mlp']}+layers=3") if "layers=" not in workload else workload
    return once.replace("layers=2", "layers=1")


def usual(row: StrategyInfo) -> str:
    """The workload for tests of every row: the mlp, or the transformer where that needs to be."""
    return sized(row, "mlp" if takes(row, "mlp") else "transformer")


def every_row() -> list[tuple[str, StrategyInfo]]:
    """Every (framework, row) but the oracle."""
    return [(framework, row) for framework, row in catalogue() if framework != "numpy"]


def row_of(cell: str) -> StrategyInfo:
    """The row of the catalogue that a cell is of."""
    read = Cell.parse(cell)
    return strategy_info(read.framework, read.strategy)
