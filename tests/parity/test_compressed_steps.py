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
    "torch:ddp+compress=powersgd+compress_rank=2",
    "tf:mirrored+compress=fp16",
    "tf:mirrored+compress=powersgd+compress_rank=2",
    "tf:mirrored+compress=bf16",
    "tf:multi_worker_mirrored+compress=int8+accumulation_steps=2+clip_norm=0.5",
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
    # Of so small a model gRPC's own bytes are a larger share.
    assert sent == pytest.approx(result.predicted.sent_bytes_per_step, rel=0.03 if cell.startswith("torch:") else 0.3)


@pytest.mark.torch
def test_in_float32_rounding_to_bytes_is_amplified_rounding(run_cell: RunCell) -> None:
    result = run_cell("torch:ddp+compress=int8", SIZED["mlp"], devices=2, steps=40)
    assert result.parity.passed, result.parity.reason


@pytest.mark.torch
@pytest.mark.tf
def test_a_compressed_run_continues_in_the_other_framework(run_cell: RunCell, tmp_path: Path) -> None:
    """The residuals are in the state: without them, the second half would be another one."""
    first, then = tmp_path / "first", tmp_path / "then"
    fields = {"dtype": "float64", "devices": 2, "optimizer": "adamw", "keep_state": True}
    run_cell("torch:ddp+compress=int8", SIZED["mlp"], steps=4, out=str(first), **fields)
    middle = run_cell(
        "tf:multi_worker_mirrored+compress=int8", SIZED["mlp"], steps=8, start_from=str(first), out=str(then), **fields
    )
    last = run_cell("torch:ddp+compress=int8", SIZED["mlp"], steps=12, start_from=str(then), **fields)
    whole = run_cell("numpy:oracle+compress=int8", SIZED["mlp"], steps=12, **fields)
    assert [*middle.losses, *last.losses] == pytest.approx(whole.losses[4:], rel=1e-12)
    assert middle.parity.passed and last.parity.passed
