"""`--fixed-order M`: any number of devices ends in the same bits, and nothing else is changed."""

from pathlib import Path

import pytest

from samestep.common.cell import Cell
from samestep.common.errors import ConfigError
from samestep.common.request import RunConfig
from samestep.common.run import parse
from samestep.common.runtime.records import RunResult
from samestep.common.techniques import Techniques
from tests.cells import SHALLOW, SIZED
from tests.conftest import RunCell
from tests.ledgers import keeps_what_was_predicted, sends_what_was_predicted

DEEP = "prose-gpt+layers=3+width=32+context=16+dropout=0.1"
TAKEN = "+clip_norm=0.5+learning_rate_schedule=cosine+warmup_steps=2+recompute=true"
ROWS = ("torch:single", "torch:c10d", "torch:ddp", "torch:zero1", "torch:zero2", "torch:fsdp")
TF_ROWS = ("tf:single", "tf:mirrored", "tf:multi_worker_mirrored")


def of(*rows: str) -> list[object]:
    return [pytest.param(row, marks=getattr(pytest.mark, row.partition(":")[0]), id=row) for row in rows]


def bits(result: RunResult) -> tuple[object, str]:
    """The losses and the last state, parameters and optimizer."""
    assert result.parity.passed, result.parity.reason
    assert result.state_sha256
    return result.losses, result.state_sha256


def ordered(run_cell: RunCell, cell: str, workload: str, devices: int, **fields: object) -> tuple[object, str]:
    result = run_cell(cell, workload, devices=devices, **fields)
    sends_what_was_predicted(result)
    keeps_what_was_predicted(result)
    return bits(result)


@pytest.mark.parametrize("row", of("torch:ddp", "tf:mirrored"))
def test_one_two_and_four_devices(run_cell: RunCell, row: str) -> None:
    """TensorFlow on one and on four; `test_every_row_on_every_model` has every number."""
    fields, devices = {"optimizer": "adamw", "steps": 4}, (1, 4) if row.startswith("tf:") else (1, 2, 4)
    assert len({ordered(run_cell, f"{row}+fixed_order=4", SHALLOW, n, **fields) for n in devices}) == 1


@pytest.mark.slow
@pytest.mark.parametrize("row", of("torch:ddp", "tf:mirrored"))
def test_without_it_the_bits_are_others(run_cell: RunCell, row: str) -> None:
    assert len({bits(run_cell(row, SIZED["mlp"], devices=n, optimizer="adamw")) for n in (1, 2, 4)}) == 3


@pytest.mark.slow
@pytest.mark.parametrize("cell", of("torch:mp+accumulation_steps=4", "torch:pp", "torch:pp+schedule=zbv_zero_bubble"))
def test_split_between_layers_none_is_needed(run_cell: RunCell, cell: str) -> None:
    """One rank adds up all gradients of a parameter; clipped gradients and tied parameters are added up over ranks."""
    deep, fields = "prose-gpt+layers=8+width=32+context=16", {"optimizer": "adamw", "batch_size": 32}
    assert len({bits(run_cell(cell, deep, devices=n, **fields)) for n in (1, 2, 4)}) == 1
    assert len({bits(run_cell(f"{cell}+clip_norm=0.1", deep, devices=n, **fields)) for n in (1, 2)}) == 2


@pytest.mark.slow
@pytest.mark.parametrize("row", of("torch:zero2", "tf:multi_worker_mirrored"))
def test_from_four_devices_to_two_and_back(run_cell: RunCell, tmp_path: Path, row: str) -> None:
    """A run goes on from a checkpoint, on another number of devices; nothing of that is seen in what it ends with."""
    cell, fields = f"{row}+fixed_order=4", {"optimizer": "adamw", "keep_state": True, "parity": False}
    unbroken = run_cell(cell, SIZED["mlp"], devices=1, steps=9, **fields)
    losses, start = (), None
    for devices, steps in ((4, 3), (2, 6), (4, 9)):
        out = str(tmp_path / str(steps))
        part = run_cell(cell, SIZED["mlp"], devices=devices, steps=steps, start_from=start, out=out, **fields)
        losses, start = (*losses, *part.losses), out
    assert losses == unbroken.losses
    assert part.state_sha256 == unbroken.state_sha256 != ""


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("optimizer", "dtype"), [("sgd", "float64"), ("adamw", "float32")])
@pytest.mark.parametrize("model", SIZED)
@pytest.mark.parametrize("row", of(*ROWS, *TF_ROWS))
def test_every_row_on_every_model(run_cell: RunCell, row: str, model: str, optimizer: str, dtype: str) -> None:
    sizes = (1,) if row.endswith(":single") else (1, 2, 4, 8)
    fields = {"optimizer": optimizer, "dtype": dtype, "batch_size": 64}
    found = {ordered(run_cell, f"{row}+fixed_order=8", SIZED[model], n, **fields) for n in sizes}
    assert len(found) == 1


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("row", of("torch:ddp", "torch:zero1", "tf:mirrored", "tf:multi_worker_mirrored"))
@pytest.mark.parametrize("further", ["", "+precision=bf16", "+compile=true"])
def test_with_other_techniques(run_cell: RunCell, row: str, further: str) -> None:
    cell = f"{row}+fixed_order=4{TAKEN}{further}"
    assert len({ordered(run_cell, cell, DEEP, n, optimizer="adamw") for n in (1, 2, 4)}) == 1


OWN = Path(__file__).parents[1] / "own" / "both_zoo.py"


@pytest.mark.slow
@pytest.mark.parametrize("row", of("torch:ddp", "torch:fsdp", "tf:mirrored", "tf:multi_worker_mirrored"))
def test_a_model_of_the_users(run_cell: RunCell, row: str) -> None:
    fields = {"model": f"{OWN}:CNN", "data": f"{OWN}:images", "optimizer": "adamw", "steps": 8}
    assert len({ordered(run_cell, f"{row}+fixed_order=4", "digits-mlp", n, **fields) for n in (1, 2, 4)}) == 1


@pytest.mark.slow
@pytest.mark.torch
def test_rows_of_torch_end_in_the_same_bits(run_cell: RunCell) -> None:
    found = {ordered(run_cell, f"{row}+fixed_order=4", SIZED["mlp"], 1 if row == "torch:single" else 2) for row in ROWS}
    assert len(found) == 1


@pytest.mark.parametrize(
    ("cell", "devices", "line"),
    [
        ("torch:ddp+fixed_order=6", 2, "--fixed-order 6 is not a power of two, which its tree needs; give 4 or 8"),
        (
            "torch:ddp+fixed_order=8",
            3,
            "which 3 devices cannot have; use --devices with one of 1, 2, 4, 8, or a larger",
        ),
        ("torch:ddp+fixed_order=2", 4, "which 4 devices cannot have; use --devices with one of 1, 2, or a larger"),
        ("torch:ddp+fixed_order=8+accumulation_steps=2", 2, "how many micro-batches there are; leave out --accum"),
        ("torch:ddp+fixed_order=8+compress=int8", 2, "--compress int8 and --fixed-order 8 both exchange gradients"),
        ("torch:c10d+fixed_order=8+ring=true", 2, "--fixed-order 8 exchanges in its own way; leave out --ring"),
        ("tf:mirrored+fixed_order=8+reduce=ring", 2, "--fixed-order 8 exchanges in its own way; leave out --reduce"),
        ("torch:pp+fixed_order=8", 2, "and one rank already adds up all gradients of an untied parameter"),
        ("torch:tp+fixed_order=8", 2, "its ranks compute parts of every example, so their number decides"),
        ("torch:zero2+fixed_order=8+clip_norm=1", 2, "leave out --clip-norm, or choose torch:ddp or torch:zero1"),
        ("torch:fsdp+fixed_order=8+precision=bf16", 2, "leave out --precision, or choose torch:ddp or torch:zero1"),
    ],
)
def test_what_has_no_fixed_order(cell: str, devices: int, line: str) -> None:
    with pytest.raises(ConfigError, match=line):
        parse(Cell.parse(cell).apply_to(RunConfig(workload="synthetic-mlp", devices=devices)))


def test_the_oracle_has_none() -> None:
    with pytest.raises(
        ConfigError, match="numpy:oracle does not take --fixed-order: it is the reference for every order"
    ):
        parse(RunConfig("numpy", "oracle", "synthetic-mlp", dtype="float64", techniques=Techniques(fixed_order=2)))


def test_running_statistics_have_no_fixed_order() -> None:
    asked = RunConfig(strategy="ddp", workload="mnist-cnn+norm=batch", techniques=Techniques(fixed_order=4))
    with pytest.raises(ConfigError, match=r"running statistics .* add --batch-norm frozen"):
        parse(asked)
