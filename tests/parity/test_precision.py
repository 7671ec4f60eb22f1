"""Mixed precision: every way of taking a step stays within the rounding that was derived, and sends what was predicted."""

import dataclasses
import math
from collections.abc import Mapping

import numpy as np
import pytest

from samestep.common.cell import Cell
from samestep.common.errors import ConfigError
from samestep.common.features.batch_norm.bound import DIVISION, error_growth
from samestep.common.features.batch_norm.flag import STATISTICS
from samestep.common.judging.roundoff import NOISE, noise_of, statistics_noise
from samestep.common.request import UNIT_ROUNDOFF, RunConfig
from samestep.common.run import parse
from samestep.common.strategy import Run
from samestep.common.techniques import Techniques
from samestep.common.techniques.used import gradient_error
from tests.cells import SIZED, USUAL_OPTIMIZERS, every_row, takes
from tests.conftest import RunCell
from tests.ledgers import keeps_what_was_predicted, sends_what_was_predicted
from tests.parity.products import record

DEEP = "prose-gpt+layers=3+width=32+context=16"
"""With more than one inner segment."""
BF16 = "precision=bf16"
STEPS = {
    "torch:ddp": {},
    "torch:fsdp": {},
    "torch:fsdp+recompute=true": {},
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
    "torch:ddp+recompute=true": (f"{DEEP}+dropout=0.1", {}),
    "torch:mp+recompute=true": (DEEP, {}),
    "torch:tp+recompute=true": (DEEP, {}),
    "torch:tp+sequence_parallel=true+recompute=true": (DEEP, {}),
    "torch:deepspeed+zero_stage=3": (SIZED["transformer"], {}),
    "torch:hybrid+recompute=true": (DEEP, {"mesh": "pipe=2,tensor=2"}),
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
    if "compile=true" not in cell:
        seen = zip(result.processes, result.predicted.devices(), strict=True)
        assert all(row.activations_bytes is None or each.activations_bytes is not None for row, each in seen)
    for measured, predicted in zip(result.processes, result.predicted.devices(), strict=True):
        assert [getattr(measured, name) for name in HELD] == [getattr(predicted, name) for name in HELD]
    if cell == "torch:fsdp":
        sent = sum(row.sent_bytes_per_step for row in result.processes)
        assert sent == pytest.approx(result.predicted.sent_bytes_per_step, rel=0.03)
    record(result)


HELD = ("params_bytes", "params_peak_bytes", "gradients_bytes", "optimizer_bytes")


@pytest.mark.parametrize(("cell", "where"), marked(STEPS))
def test_a_step_in_two_bytes(run_cell: RunCell, cell: str, where: dict[str, str]) -> None:
    model = "transformer" if "torch:fsdp" in cell else "mlp"  # which is traced in less time
    computes_in_two_bytes(run_cell, cell, SIZED[model], steps=4, **where)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("cell", "what"), marked(TOGETHER))
def test_what_people_combine_with_it(run_cell: RunCell, cell: str, what: tuple[str, dict[str, str]]) -> None:
    workload, where = what
    computes_in_two_bytes(run_cell, cell, workload, **where)


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", USUAL_OPTIMIZERS)
@pytest.mark.parametrize("model", SIZED)
@pytest.mark.parametrize(
    ("cell", "where"), marked({f"{name}:{row.name}": len(row.axes) for name, row in every_row() if takes(row, "mlp")})
)
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


def normed(workload: str, **fields: object) -> Run:
    techniques = Techniques(precision="bf16")
    return parse(RunConfig(workload=f"{workload}+norm=batch", techniques=techniques, **{"batch_size": 48, **fields}))


def test_the_bound_grows_with_every_normalisation() -> None:
    """By the square of what a ReLU returns over its variance, here drawn; and by what few numbers add."""
    drawn = np.maximum(np.random.default_rng(0).normal(size=10**6), 0)
    growth = (drawn**2).mean() / drawn.var()
    for norms in (1, 2, 3):
        run = normed(f"digits-mlp+layers={norms + 1}+activation=relu", batch_norm="frozen")
        assert gradient_error(run) == pytest.approx(math.sqrt(6 * (2 * norms + 1) * growth**norms) / 256, rel=0.005)
    of_whole, of_halves = (gradient_error(normed("digits-mlp", strategy="ddp", devices=n)) for n in (1, 2))
    assert of_halves / of_whole == pytest.approx((22 / 21 / (46 / 45)) ** 1.5)


def test_few_numbers_have_a_deviation_that_small_only_by_chance() -> None:
    """Of normal numbers, the mean of 1 / variance is (n - 1) / (n - 3) of what it would be; of three it is infinite."""
    rows = np.random.default_rng(0).normal(size=(50_000, 8))
    ratio = (1 / rows.var(axis=1, ddof=1)).mean()
    assert ratio == pytest.approx(7 / 5, rel=0.02)
    assert error_growth(normed("digits-mlp+layers=2", batch_size=8)) == pytest.approx(DIVISION["gelu"] * 6 / 5)
    for batch, layers in ((3, 2), (4, 8)):
        with pytest.raises(ConfigError, match=rf"divide by the deviation of {batch} numbers: errors would grow"):
            normed(f"digits-mlp+layers={layers}", batch_size=batch)
    assert normed("digits-mlp+layers=2", batch_size=3, batch_norm="frozen")
    assert normed("mnist-cnn", batch_size=1), "it has a number for every pixel"


def test_running_statistics_are_allowed_what_rounding_does_and_frozen_ones_nothing() -> None:
    run = normed("digits-mlp")
    assert statistics_noise(run, 0.01) == gradient_error(run) + 0.02
    assert statistics_noise(dataclasses.replace(run, batch_norm="frozen"), 0.01) < 1e-7
    plain = dataclasses.replace(run, techniques=Techniques())
    assert statistics_noise(plain, 0.01) == NOISE["float32"] + 0.02
    assert statistics_noise(dataclasses.replace(plain, dtype="float64"), 0.01) is None


FEATURES = (
    f"{SIZED['transformer']}+tied=true",
    f"{SIZED['transformer']}+dropout=0.1",
    f"{SIZED['transformer']}+ignored=0.3",
    f"{SIZED['cnn']}+activation=relu+pooling=max",
)


FEATURED = ("torch:ddp", "torch:fsdp", "torch:pp+schedule=zbv_zero_bubble", "torch:tp", "tf:mirrored")


@pytest.mark.slow
@pytest.mark.parametrize("workload", FEATURES)
@pytest.mark.parametrize(("cell", "where"), marked(dict.fromkeys(FEATURED)))
def test_features_keep_in_two_bytes_what_was_predicted(
    run_cell: RunCell, cell: str, where: None, workload: str
) -> None:
    computes_in_two_bytes(run_cell, cell, workload)


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.parametrize("model", SIZED)
@pytest.mark.parametrize("recomputes", ["", "+recompute=true"])
@pytest.mark.parametrize("cell", ["torch:ddp", "torch:fsdp", "torch:tp", "torch:deepspeed+zero_stage=3"])
def test_every_model_keeps_in_two_bytes_what_was_predicted(
    run_cell: RunCell, cell: str, recomputes: str, model: str
) -> None:
    if recomputes and "deepspeed" in cell:
        pytest.skip("what its linear function keeps then is not predicted")
    computes_in_two_bytes(run_cell, f"{cell}{recomputes}", SIZED[model], steps=2)


@pytest.mark.parametrize(
    ("cell", "statistics"),
    [
        pytest.param("torch:fsdp", "sync", marks=pytest.mark.torch),
        pytest.param("torch:fsdp", "local", marks=pytest.mark.torch),
        pytest.param("tf:mirrored", "local", marks=pytest.mark.tf),
    ],
)
def test_batch_statistics_in_two_bytes(run_cell: RunCell, cell: str, statistics: str) -> None:
    """Scale and bias are gathered in two bytes, or in float32."""
    workload = f"{SIZED['mlp']}+layers=2+norm=batch"
    computes_in_two_bytes(run_cell, cell, workload, steps=4, batch_norm=statistics)


@pytest.mark.slow
@pytest.mark.parametrize("statistics", STATISTICS)
@pytest.mark.parametrize("model", ["mlp", "cnn"])
@pytest.mark.parametrize(("cell", "where"), marked({f"{name}:{row.name}": len(row.axes) for name, row in every_row()}))
def test_every_row_that_takes_norms_takes_them_in_two_bytes(
    run_cell: RunCell, cell: str, where: int, model: str, statistics: str
) -> None:
    fields = {"devices": 2 if where else 1, "batch_norm": statistics, "optimizer": "adamw", "steps": 20}
    workload = f"{SIZED[model]}+norm=batch"
    try:
        parse(Cell.parse(cell).apply_to(RunConfig(workload=workload, batch_size=48, **{**fields, "steps": 20})))
    except ConfigError:
        pytest.skip("it takes no such norms in any precision")
    computes_in_two_bytes(run_cell, cell, workload, **fields)
