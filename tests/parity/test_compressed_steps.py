"""Every program that compresses takes the step that NumPy states, and sends what was predicted."""

from pathlib import Path

import pytest

from tests.cells import SIZED
from tests.conftest import RunCell
from tests.ledgers import keeps_what_was_predicted, sends_what_was_predicted

CELLS = [
    "torch:ddp+compress=fp16",
    "torch:ddp+compress=bf16",
    "torch:ddp+compress=int8+accumulation_steps=2+clip_norm=0.5",
]


def marked(cell: str) -> object:
    return pytest.param(cell, marks=getattr(pytest.mark, cell.partition(":")[0]), id=cell)


@pytest.mark.parametrize("cell", [marked(cell) for cell in CELLS])
def test_a_compressed_step_is_the_stated_one(run_cell: RunCell, cell: str) -> None:
    result = run_cell(cell, SIZED["mlp"], dtype="float64", optimizer="adamw", devices=2)
    assert result.parity.passed and not result.parity.is_amplified, result.parity.reason
    sends_what_was_predicted(result)
    keeps_what_was_predicted(result)
    for row, predicted in zip(result.processes, result.predicted.devices(), strict=True):
        assert row.residuals_bytes == predicted.residuals_bytes
    sent = sum(row.sent_bytes_per_step for row in result.processes if row.sent_bytes_per_step is not None)
    assert sent == pytest.approx(result.predicted.sent_bytes_per_step, rel=0.03)


@pytest.mark.torch
def test_in_float32_rounding_to_bytes_is_amplified_rounding(run_cell: RunCell) -> None:
    result = run_cell("torch:ddp+compress=int8", SIZED["mlp"], devices=2, steps=40)
    assert result.parity.passed, result.parity.reason


@pytest.mark.torch
def test_a_compressed_run_continues_where_it_stopped(run_cell: RunCell, tmp_path: Path) -> None:
    """The residuals are in the state: without them, the second half would be another one."""
    fields = {"dtype": "float64", "devices": 2, "optimizer": "adamw"}
    whole = run_cell("torch:ddp+compress=int8", SIZED["mlp"], steps=12, **fields)
    run_cell("torch:ddp+compress=int8", SIZED["mlp"], steps=6, out=str(tmp_path / "half"), keep_state=True, **fields)
    rest = run_cell("torch:ddp+compress=int8", SIZED["mlp"], steps=12, start_from=str(tmp_path / "half"), **fields)
    assert rest.parity.passed, rest.parity.reason
    assert rest.losses == pytest.approx(whole.losses[6:], rel=1e-12)
