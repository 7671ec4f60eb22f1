"""Every row of the catalogue takes the oracle's step, on every model."""

from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from samestep.common.program import TrainState
from samestep.common.runtime.state_file import read_state
from samestep.common.steps.log import read_log
from samestep.common.strategy import StrategyInfo
from tests.cells import REGRESSION, SIZED, every_row, sized, takes, traced_once, usual
from tests.conftest import RunCell
from tests.ledgers import keeps_what_was_predicted, sends_what_was_predicted

ROWS = [
    pytest.param(framework, row, id=f"{framework}:{row.name}", marks=getattr(pytest.mark, framework))
    for framework, row in every_row()
]


SUMS = ("torch:ddp", "torch:fsdp", "torch:hybrid", "torch:rpc_parameter_server", "tf:mirrored", "tf:dtensor")
"""One row for each way of adding up over devices."""
USUAL = ("torch:ddp", "tf:mirrored")
"""The other rows are on `make test-slow`."""


def fast(*names: str) -> list[ParameterSet]:
    """Every row, those that are not named only for `make test-slow`."""
    return [pytest.param(*p.values, id=p.id, marks=[*p.marks, *([] if p.id in names else SLOW)]) for p in ROWS]


SLOW = [pytest.mark.slow]


def took_the_same_step(run_cell: RunCell, framework: str, row: StrategyInfo, workload: str, **fields: object) -> None:
    fields["devices"] = fields.get("devices", 2) if row.axes else 1
    result = run_cell(f"{framework}:{row.name}", workload, **fields)
    sends_what_was_predicted(result)
    keeps_what_was_predicted(result)
    synchronous = row.synchronous(row.options())
    assert result.conditions.compilations == 0, "what is compiled later than in the first step is timed"
    assert len(result.losses) == result.parity.steps or not synchronous
    if synchronous:
        assert result.parity.passed, result.parity.reason
    else:
        assert result.parity.passed is None
        assert result.parity.reason


@pytest.mark.slow
@pytest.mark.parametrize(
    ("framework", "row", "model"),
    [
        pytest.param(*p.values, model, id=f"{p.id}-{model}", marks=p.marks)
        for p in ROWS
        for model in SIZED
        if takes(p.values[1], model)
    ],
)
def test_float64_adamw(run_cell: RunCell, framework: str, row: StrategyInfo, model: str) -> None:
    """Each row on every model; `make test` has each row, and each model in each way of adding up, in `test_covered.py`."""
    if "float64" not in row.dtypes:
        pytest.skip(f"{framework}:{row.name} trains in {', '.join(row.dtypes)} only")
    fields = {"dtype": "float64", "optimizer": "adamw"}
    took_the_same_step(run_cell, framework, row, traced_once(framework, sized(row, model)), **fields)


@pytest.mark.parametrize(("framework", "row"), fast(*SUMS))
def test_float32_sgd(run_cell: RunCell, framework: str, row: StrategyInfo) -> None:
    took_the_same_step(run_cell, framework, row, usual(row), dtype="float32", optimizer="sgd")


@pytest.mark.parametrize(("framework", "row"), fast(*USUAL))
def test_a_regression_on_four_devices_twice(
    run_cell: RunCell, tmp_path: Path, framework: str, row: StrategyInfo
) -> None:
    """A second run of the same command has the same bits. A row of one device has but that."""
    fields = {"devices": 4, "dtype": row.dtypes[-1], "optimizer": "adamw", "keep_state": True}
    workload = REGRESSION if takes(row, "mlp") else usual(row)
    outs = [tmp_path / "first", tmp_path / "second"]
    for out in outs:
        took_the_same_step(run_cell, framework, row, workload, out=str(out), **fields)
    if not row.varies(row.options()):
        assert read_log(outs[0]).losses == read_log(outs[1]).losses
        first, second = (bits(read_state(out)) for out in outs)
        assert first == second


def bits(state: TrainState) -> dict[str, bytes]:
    """Every array of a state."""
    arrays = {"params": state.params, "buffers": state.buffers, **state.slots, **dict(enumerate(state.local))}
    return {f"{group}/{name}": value.tobytes() for group, held in arrays.items() for name, value in held.items()}


@pytest.mark.parametrize(("framework", "row"), [p for p in fast("torch:fsdp", "tf:mirrored") if p.values[1].axes])
def test_one_device(run_cell: RunCell, framework: str, row: StrategyInfo) -> None:
    """On one core, too: a device has no more."""
    took_the_same_step(run_cell, framework, row, usual(row), dtype=row.dtypes[-1], optimizer="sgd", devices=1)


@pytest.mark.parametrize("seed", [pytest.param(7, marks=pytest.mark.slow), 12345])
@pytest.mark.parametrize(("framework", "row"), [p for p in fast(*USUAL) if p.values[1].axes[:1] == ("data",)])
def test_three_devices_and_odd_seeds(run_cell: RunCell, framework: str, row: StrategyInfo, seed: int) -> None:
    dtype = row.dtypes[-1]
    took_the_same_step(run_cell, framework, row, SIZED["mlp"], dtype=dtype, optimizer="sgd", devices=3, seed=seed)
