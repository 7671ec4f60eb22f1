"""Optimizers beside those that every row and every product trains with."""

import pytest

from samestep.common.catalog import strategy_info
from samestep.common.errors import ConfigError
from samestep.common.runtime.records import RunResult
from samestep.common.workload.optimizers.table import OPTIMIZERS, optimizer_named
from tests.cells import SIZED, USUAL_OPTIMIZERS, every_row, sized, traced_once
from tests.conftest import RunCell
from tests.ledgers import sends_what_was_predicted

OTHERS = [name for name in OPTIMIZERS if name not in USUAL_OPTIMIZERS]
QUICK = ("torch:zero1",)
"""The others are in `test_covered.py`, a further optimizer in each way of adding up."""
CUTTING = (("shard",), ("tensor",), ("expert",))
"""The first axes of rows that cut matrices."""
CELLS = [
    pytest.param(
        name,
        2 if row.axes else 1,
        id=name,
        marks=[getattr(pytest.mark, framework), *([] if name in QUICK else [pytest.mark.slow])],
    )
    for framework, row in every_row()
    for name in [f"{framework}:{row.name}"]
    if "float64" in row.dtypes and row.synchronous(row.options())
]


def model_of(cell: str) -> str:
    """The transformer, as a row takes it."""
    framework, _, name = cell.partition(":")
    return traced_once(framework, sized(strategy_info(framework, name), "transformer"))


@pytest.mark.parametrize("optimizer", OTHERS)
@pytest.mark.parametrize(("cell", "devices"), CELLS)
def test_it_takes_the_oracles_step_and_holds_what_is_predicted(
    run_cell: RunCell, cell: str, devices: int, optimizer: str
) -> None:
    info = strategy_info(*cell.split(":"))

    def run() -> RunResult:
        return run_cell(cell, model_of(cell), devices=devices, dtype="float64", optimizer=optimizer, steps=4)

    if not optimizer_named(optimizer).is_elementwise and (info.cuts_parameters or info.axes[:1] in CUTTING):
        with pytest.raises(ConfigError, match=f"--optimizer {optimizer} updates whole matrices, which {cell} cuts"):
            run()
        return
    result = run()
    assert result.parity.passed, result.parity.reason
    assert not result.parity.is_amplified
    sends_what_was_predicted(result)
    for row, predicted in zip(result.processes, result.predicted.devices(), strict=True):
        assert row.optimizer_bytes == predicted.optimizer_bytes


@pytest.mark.torch
@pytest.mark.parametrize("optimizer", ["muon", pytest.param("adafactor", marks=pytest.mark.slow)])
def test_workers_hold_the_state_of_their_own_layers(run_cell: RunCell, optimizer: str) -> None:
    """Of tables, which are the server's, these optimizers keep more or less for each number than of matrices."""
    asked = {"devices": 2, "dtype": "float64", "optimizer": optimizer, "steps": 4}
    result = run_cell("torch:rpc_parameter_server", SIZED["ranker"], **asked)
    assert result.parity.passed, result.parity.reason
    for row, predicted in zip(result.processes, result.predicted.devices(), strict=True):
        assert row.optimizer_bytes == predicted.optimizer_bytes


@pytest.mark.parametrize(("cell", "devices"), CELLS)
def test_vectors_have_their_own_decay_and_rate_where_it_is_asked(run_cell: RunCell, cell: str, devices: int) -> None:
    asked = {"devices": devices, "dtype": "float64", "optimizer": "adamw", "steps": 4}
    result = run_cell(
        f"{cell}+decayed=matrices+vector_rate=4+warmup_steps=3",
        model_of(cell),
        **asked,
    )
    assert result.parity.passed, result.parity.reason
    assert not result.parity.is_amplified
