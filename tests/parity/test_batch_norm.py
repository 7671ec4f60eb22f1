"""Batch normalization of our models: over the whole batch, over each replica's part, or by running statistics."""

import dataclasses
from pathlib import Path

import pytest

from samestep.common.cell import Cell
from samestep.common.errors import ConfigError
from samestep.common.request import RunConfig
from samestep.common.run import parse
from samestep.common.runtime.state_file import read_state, write_state
from tests.cells import SIZED, slow
from tests.conftest import RunCell
from tests.ledgers import keeps_what_was_predicted, sends_what_was_predicted

MLP, CNN = (f"{SIZED[name]}+norm=batch" for name in ("mlp", "cnn"))


def marked(*cells: str) -> list[object]:
    """Cells with the marker of their framework."""
    return [pytest.param(cell, marks=getattr(pytest.mark, cell.partition(":")[0]), id=cell) for cell in cells]


SYNC = [
    *marked("torch:ddp"),
    *slow("tf:multi_worker_mirrored"),
    *slow("torch:c10d+ring=true", "torch:zero1", "torch:zero2", "torch:fsdp+mesh=data=2,shard=2"),
    *slow("torch:deepspeed+zero_stage=3", "tf:mirrored"),
]


@pytest.mark.parametrize("cell", SYNC)
def test_statistics_of_the_whole_batch_are_exchanged_as_predicted(run_cell: RunCell, cell: str) -> None:
    fields = {} if "mesh" in cell else {"devices": 2}
    dtype = "float32" if "deepspeed" in cell else "float64"
    result = run_cell(cell, CNN, dtype=dtype, steps=6, batch_norm="sync", **fields)
    assert result.parity.passed, result.parity.reason
    sends_what_was_predicted(result)
    keeps_what_was_predicted(result)
    if result.processes[0].sent_bytes_per_step:
        sent = sum(row.sent_bytes_per_step for row in result.processes)
        assert sent == pytest.approx(result.predicted.sent_bytes_per_step, rel=0.03)


@pytest.mark.parametrize("cell", [*marked("torch:ddp"), *slow("tf:mirrored")])
def test_statistics_of_the_whole_batch_are_those_of_one_device(run_cell: RunCell, cell: str) -> None:
    fields = {"dtype": "float64", "steps": 4, "parity": False}
    alone = run_cell("numpy:oracle", MLP, **fields).losses
    assert run_cell(cell, MLP, devices=2, batch_norm="sync", **fields).losses == pytest.approx(alone, rel=1e-12)
    assert run_cell(cell, MLP, devices=2, **fields).losses != pytest.approx(alone, rel=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("cell", marked("torch:ddp", "tf:mirrored"))
def test_float32_sums_keep_their_digits(run_cell: RunCell, cell: str) -> None:
    """A channel of the default model has 37,632 numbers; summed one by one they lose 2e-6 of the loss in the first step."""
    result = run_cell(cell, "mnist-cnn+norm=batch", devices=2, batch_size=96, steps=10)
    assert result.parity.max_relative_loss < 1e-6


@pytest.mark.parametrize(
    ("begun", "cell"),
    [
        pytest.param("torch:ddp", "torch:zero2", marks=pytest.mark.torch),
        pytest.param("tf:mirrored", "torch:ddp", marks=[pytest.mark.tf, pytest.mark.torch, pytest.mark.slow]),
        pytest.param("torch:ddp", "tf:multi_worker_mirrored", marks=[pytest.mark.tf, pytest.mark.slow]),
    ],
)
def test_running_statistics_decide_the_metric_and_are_kept(
    run_cell: RunCell, begun: str, cell: str, tmp_path: Path
) -> None:
    """A run that continues frozen uses, and keeps, what an earlier one has seen."""
    fields = {"dtype": "float64", "keep_state": True, "devices": 2}
    first = run_cell(begun, MLP, steps=5, out=str(tmp_path / "first"), all_held_out=True, **fields)
    oracle = run_cell("numpy:oracle", MLP, steps=5, dtype="float64", devices=2, all_held_out=True)
    assert first.metric_value == oracle.metric_value
    frozen = {"steps": 8, "batch_norm": "frozen", "start_from": str(tmp_path / "first")}
    result = run_cell(cell, MLP, out=str(tmp_path / "second"), **frozen, **fields)
    assert result.parity.passed, result.parity.reason
    keeps_what_was_predicted(result)
    assert all(row.activations_bytes is not None for row in result.predicted.devices())
    before, after = (read_state(tmp_path / name).buffers for name in ("first", "second"))
    assert all((before[name] == after[name]).all() for name in before) and len(before) == 6


def test_a_state_without_running_statistics_is_not_continued(run_cell: RunCell, tmp_path: Path) -> None:
    run_cell("numpy:oracle", MLP, steps=2, dtype="float64", out=str(tmp_path / "first"), keep_state=True)
    (tmp_path / "lost").mkdir()
    write_state(tmp_path / "lost", dataclasses.replace(read_state(tmp_path / "first"), buffers={}))
    with pytest.raises(ConfigError, match=r"its layers/0/norm/running_mean is not there, that of \S+ is \[32\]"):
        run_cell("torch:single", MLP, steps=4, start_from=str(tmp_path / "lost"))


@pytest.mark.parametrize(
    ("cell", "reason"),
    [
        ("torch:pp", "it takes one micro-batch after the other"),
        ("torch:hybrid+mesh=pipe=2,data=2", "it takes one micro-batch after the other"),
        ("torch:ddp+accumulation_steps=2", "sees one micro-batch at a time"),
        ("torch:ddp+compress=int8", "judged shard by shard, and no shard has the statistics of the whole batch"),
        ("tf:mirrored+compile=true", "XLA compiles each replica alone"),
    ],
)
def test_where_statistics_of_the_whole_batch_cannot_be_had(cell: str, reason: str) -> None:
    config = RunConfig(workload=MLP, batch_norm="sync", devices=None if "mesh" in cell else 2)
    with pytest.raises(ConfigError, match=reason):
        parse(Cell.parse(cell).apply_to(config))


def test_a_tensor_axis_takes_no_statistics() -> None:
    with pytest.raises(ConfigError, match="no plan cuts running statistics along with the channels of a layer"):
        parse(Cell.parse("torch:hybrid+mesh=pipe=2,tensor=2").apply_to(RunConfig(workload=MLP)))
