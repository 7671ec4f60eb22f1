"""Mixed precision: every way of taking a step stays within the rounding that was derived, and sends what was predicted."""

import dataclasses
import math
from collections.abc import Mapping

import pytest

from samestep.common.evidence.roundoff import UNIT_ROUNDOFF, gradient_error, noise_of
from samestep.common.request import OPTIMIZERS, RunConfig
from samestep.common.run import parse
from samestep.common.techniques import Techniques
from tests.cells import SIZED, every_row
from tests.conftest import RunCell
from tests.ledgers import keeps_what_was_predicted, sends_what_was_predicted
from tests.parity.products import record

DEEP = "prose-gpt+layers=3+width=32+context=16"
"""With more than one inner segment."""
BF16 = "precision=bf16"
STEPS = {
    "torch:ddp": {},
    "torch:fsdp": {},
    "torch:pp": {},
    "torch:tp": {},
    "torch:rpc": {},
    "torch:rpc_parameter_server": {},
    "tf:mirrored": {},
    "tf:parameter_server": {},
    "tf:dtensor": {"mesh": "data=2"},
}
"""One row for each way of taking a step."""
TOGETHER = {
    "torch:fsdp+recompute=true+accumulation_steps=2+clip_norm=0.5": (DEEP, {}),
    "torch:pp+schedule=1f1b": (f"{DEEP}+tied=true", {}),
    "torch:ddp+compile=true": (SIZED["transformer"], {}),
    "torch:tp+recompute=true": (DEEP, {}),
    "torch:tp+sequence_parallel=true": (SIZED["transformer"], {}),
    "torch:deepspeed+zero_stage=3": (SIZED["transformer"], {}),
    "torch:hybrid+clip_norm=0.5": (SIZED["transformer"], {"mesh": "shard=2,tensor=2"}),
    "torch:hybrid+accumulation_steps=2+microbatches=2": (SIZED["transformer"], {"mesh": "pipe=2,shard=2"}),
    "tf:mirrored+recompute=true+accumulation_steps=2+clip_norm=0.5": (DEEP, {}),
    "tf:mirrored+compile=true": (SIZED["cnn"], {}),
    "tf:dtensor": (f"{DEEP}+tied=true", {"mesh": "data=2,tensor=2"}),
}
"""What people combine, as (workload, where)."""


def marked(cells: Mapping[str, object]) -> list[object]:
    marks = [
        [getattr(pytest.mark, cell.partition(":")[0]), *([pytest.mark.slow] if cell == "tf:parameter_server" else [])]
        for cell in cells
    ]
    return [pytest.param(cell, given, marks=m, id=cell) for (cell, given), m in zip(cells.items(), marks, strict=True)]


def computes_in_two_bytes(run_cell: RunCell, cell: str, workload: str, **fields: object) -> None:
    where = {} if "mesh" in fields or "devices" in fields else {"devices": 2}
    result = run_cell(f"{cell}+{BF16}", workload, **{"optimizer": "adamw", "steps": 8, **where, **fields})
    assert result.parity.passed, result.parity.reason
    assert result.parity.max_relative_loss > UNIT_ROUNDOFF["float32"], "nothing was rounded to two bytes"
    assert "--precision bf16 on CPU cores" in result.emulation
    sends_what_was_predicted(result)
    keeps_what_was_predicted(result)
    if cell in ("torch:ddp", "torch:fsdp", "torch:pp"):
        assert all(row.activations_bytes is not None for row in result.predicted.devices())
    for measured, predicted in zip(result.processes, result.predicted.devices(), strict=True):
        assert [getattr(measured, name) for name in HELD] == [getattr(predicted, name) for name in HELD]
    if cell == "torch:fsdp":
        sent = sum(row.sent_bytes_per_step for row in result.processes)
        assert sent == pytest.approx(result.predicted.sent_bytes_per_step, rel=0.03)
    record(result)


HELD = ("params_bytes", "params_peak_bytes", "gradients_bytes", "optimizer_bytes")


@pytest.mark.parametrize(("cell", "where"), marked(STEPS))
def test_a_step_in_two_bytes(run_cell: RunCell, cell: str, where: dict[str, str]) -> None:
    model = "transformer" if cell == "torch:fsdp" else "mlp"  # which is traced in less time
    computes_in_two_bytes(run_cell, cell, SIZED[model], steps=4, **where)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("cell", "what"), marked(TOGETHER))
def test_what_people_combine_with_it(run_cell: RunCell, cell: str, what: tuple[str, dict[str, str]]) -> None:
    workload, where = what
    computes_in_two_bytes(run_cell, cell, workload, **where)


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("model", SIZED)
@pytest.mark.parametrize(("cell", "where"), marked({f"{name}:{row.name}": len(row.axes) for name, row in every_row()}))
def test_a_hundred_steps_stay_within_the_bound(
    run_cell: RunCell, cell: str, where: int, model: str, optimizer: str
) -> None:
    devices = 2 if where else 1
    computes_in_two_bytes(run_cell, cell, SIZED[model], steps=100, optimizer=optimizer, devices=devices)


def test_the_bound_follows_from_the_products() -> None:
    """Three layers of an MLP; and six kernels a block, one of the head, which may be the table of tokens."""
    techniques = Techniques(precision="bf16")
    for workload, products in (("digits-mlp+layers=3", 3), (DEEP, 19), (f"{DEEP}+tied=true", 19)):
        run = parse(RunConfig(workload=workload, techniques=techniques))
        assert gradient_error(run) == pytest.approx(math.sqrt(6 * products) / 256)
        half = dataclasses.replace(run, techniques=Techniques(precision="fp16"))
        assert gradient_error(half) == pytest.approx(math.sqrt(6 * products) / 2048)
        plain = dataclasses.replace(run, techniques=Techniques())
        assert gradient_error(plain) is None
        assert noise_of(plain)[0] < noise_of(half)[0] < noise_of(run)[0]


FEATURES = (
    f"{SIZED['transformer']}+tied=true",
    f"{SIZED['transformer']}+dropout=0.1",
    f"{SIZED['transformer']}+ignored=0.3",
    f"{SIZED['cnn']}+activation=relu+pooling=max",
)


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.parametrize("workload", FEATURES)
@pytest.mark.parametrize("cell", ["torch:ddp", "torch:fsdp", "torch:pp+schedule=zbv_zero_bubble"])
def test_features_keep_in_two_bytes_what_was_predicted(run_cell: RunCell, cell: str, workload: str) -> None:
    computes_in_two_bytes(run_cell, cell, workload)
