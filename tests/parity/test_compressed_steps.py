"""Every program that compresses takes the step that NumPy states, and sends what was predicted."""

from pathlib import Path

import pytest

from samestep.common.cell import Cell
from samestep.common.request import RunConfig
from samestep.common.run import parse
from samestep.common.techniques.compress.flag import COMPRESSIONS
from tests.cells import SHALLOW, SIZED, slow
from tests.conftest import RunCell
from tests.ledgers import keeps_and_sends_what_was_predicted, sends_what_was_predicted
from tests.parity.products import record

CELLS = [
    "torch:ddp+compress=int8+accumulation_steps=2+clip_norm=0.5",
    "tf:mirrored+compress=powersgd+compress_rank=2+compress_warmup_steps=12",
]
"""For more steps than in `test_covered.py`, which has every method."""
OTHERS = [
    *("torch:ddp+compress=fp16", "torch:ddp+compress=bf16", "tf:mirrored+compress=fp16", "tf:mirrored+compress=bf16"),
    "torch:ddp+compress=powersgd+compress_rank=2+compress_warmup_steps=12",
    "tf:multi_worker_mirrored+compress=int8+accumulation_steps=2+clip_norm=0.5",
]


def marked(cell: str) -> object:
    return pytest.param(cell, marks=getattr(pytest.mark, cell.partition(":")[0]), id=cell)


@pytest.mark.parametrize("cell", [*map(marked, CELLS), *slow(*OTHERS)])
def test_a_compressed_step_is_the_stated_one(run_cell: RunCell, cell: str) -> None:
    result = run_cell(cell, SIZED["mlp"], dtype="float64", optimizer="adamw", devices=2, steps=20)
    assert result.parity.passed and not result.parity.is_amplified, result.parity.reason
    assert result.conditions.compilations == 0
    keeps_and_sends_what_was_predicted(result)
    record(result)


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
    run_cell("torch:ddp+compress=int8", SHALLOW, steps=4, out=str(first), **fields)
    middle = run_cell(
        "tf:multi_worker_mirrored+compress=int8", SHALLOW, steps=8, start_from=str(first), out=str(then), **fields
    )
    last = run_cell("torch:ddp+compress=int8", SHALLOW, steps=12, start_from=str(then), **fields)
    whole = run_cell("numpy:oracle+compress=int8", SHALLOW, steps=12, **fields)
    assert [*middle.losses, *last.losses] == pytest.approx(whole.losses[4:], rel=1e-12)
    assert middle.parity.passed and last.parity.passed


@pytest.mark.parametrize(
    "row", [marked("torch:ddp"), pytest.param("tf:mirrored", marks=[pytest.mark.tf, pytest.mark.slow])]
)
def test_a_continued_run_does_not_warm_up_again(run_cell: RunCell, tmp_path: Path, row: str) -> None:
    """The warm-up ends at step 4: of a run that begins at step 2, and of one that begins after it."""
    first, then, cell = tmp_path / "first", tmp_path / "then", f"{row}+compress=powersgd+compress_warmup_steps=4"
    fields = {"dtype": "float64", "devices": 2, "keep_state": True}
    run_cell(row, SIZED["mlp"], steps=2, out=str(first), **fields)  # which compression has nothing to do with
    middle = run_cell(cell, SIZED["mlp"], steps=8, start_from=str(first), out=str(then), **fields)
    last = run_cell(cell, SIZED["mlp"], steps=12, start_from=str(then), **fields)
    whole = run_cell("numpy:oracle+compress=powersgd+compress_warmup_steps=4", SIZED["mlp"], steps=12, **fields)
    assert [*middle.losses, *last.losses] == pytest.approx(whole.losses[2:], rel=1e-12)
    later = run_cell("numpy:oracle+compress=powersgd+compress_warmup_steps=6", SIZED["mlp"], steps=12, **fields)
    assert abs(later.losses[-1] / whole.losses[-1] - 1) > 1e-6, "the end of the warm-up makes no difference here"


LARGE = "synthetic-mlp+width=1024+layers=3"
"""Of which a backend's own bytes are a small share."""
LESS = {"fp16": 2, "bf16": 2, "int8": 4}
"""Method -> how many times less it sends than float32."""
RANKS = ("powersgd+compress_rank=8", "powersgd+compress_rank=16+compress_warmup_steps=2")
"""With fewer columns, gRPC's own bytes are more than 3 %: four thousand a step at N=2, six times as many at N=4."""


@pytest.mark.slow
@pytest.mark.parametrize("devices", [2, 4])
@pytest.mark.parametrize("method", [*LESS, *RANKS])
@pytest.mark.parametrize("row", [marked("torch:ddp"), marked("tf:multi_worker_mirrored")])
def test_the_wire_carries_what_was_predicted(run_cell: RunCell, row: str, method: str, devices: int) -> None:
    fields = {"devices": devices, "steps": 4, "batch_size": 32, "parity": False}
    result = run_cell(f"{row}+compress={method}", LARGE, **fields)
    sent = sum(each.sent_bytes_per_step for each in result.processes)
    assert sent == pytest.approx(result.predicted.sent_bytes_per_step, rel=0.03)
    if method in LESS:
        plain = parse(Cell.parse(row).apply_to(RunConfig(workload=LARGE, devices=devices)))
        whole = plain.strategy.cost(plain, plain.strategy.backend).sent_bytes_per_step
        assert whole / sent == pytest.approx(LESS[method], rel=0.03)


@pytest.mark.slow
@pytest.mark.parametrize("devices", [2, 4])
@pytest.mark.parametrize("method", [*COMPRESSIONS, "powersgd+compress_warmup_steps=5"])
@pytest.mark.parametrize("model", SIZED)
@pytest.mark.parametrize("row", [marked(row) for row in ("torch:ddp", "tf:mirrored", "tf:multi_worker_mirrored")])
def test_every_model_is_compressed_as_stated(
    run_cell: RunCell, row: str, model: str, method: str, devices: int
) -> None:
    result = run_cell(f"{row}+compress={method}", SIZED[model], dtype="float64", devices=devices, steps=10)
    assert result.parity.passed and not result.parity.is_amplified, result.parity.reason
    sends_what_was_predicted(result)
    record(result)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("row", [marked("torch:ddp"), marked("tf:mirrored")])
def test_a_compiled_step_is_compressed_alike(run_cell: RunCell, row: str) -> None:
    result = run_cell(f"{row}+compress=int8+compile=true", SIZED["mlp"], dtype="float64", devices=2)
    assert result.parity.passed and not result.parity.is_amplified, result.parity.reason


@pytest.mark.slow
@pytest.mark.torch
def test_buckets_change_nothing_but_the_sends(run_cell: RunCell) -> None:
    result = run_cell("torch:ddp+compress=int8+bucket_bytes=4096", SIZED["mlp"], dtype="float64", devices=2)
    assert result.parity.passed and not result.parity.is_amplified, result.parity.reason
    sends_what_was_predicted(result)
    assert {each.name: each.count_per_step for each in result.exchanges}["all_to_all"] > 1
