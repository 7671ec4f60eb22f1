"""Features of our models under every implementation of a step: the oracle's step, at the predicted cost."""

import dataclasses
import itertools
from pathlib import Path

import pytest

from samestep.common.cell import Cell
from samestep.common.errors import ConfigError
from samestep.common.flags import flags
from samestep.common.request import RunConfig
from samestep.common.run import parse
from samestep.common.strategy import StrategyInfo
from samestep.common.workload.table import WORKLOADS, workload_named
from samestep.experiments.printing.tables import caption
from tests.cells import SIZED, every_row, needed, row_of, traced_once
from tests.conftest import RunCell
from tests.ledgers import keeps_what_was_predicted, sends_what_was_predicted
from tests.parity.products import record
from tests.results import alone

FEATURES = {
    "tied": f"{SIZED['transformer']}+tied=true",
    "activation": f"{SIZED['mlp']}+activation=relu",
    "pooling": f"{SIZED['cnn']}+activation=relu+pooling=max",
    "dropout": f"{SIZED['transformer']}+dropout=0.1",
    "ignored": f"{SIZED['transformer']}+ignored=0.3",
    "norm": f"{SIZED['cnn']}+norm=batch",
    "experts": f"{SIZED['transformer']}+experts=4+balance=0",
    "gated experts": f"{SIZED['transformer']}+experts=4+balance=0+style=llama",
    "style": f"{SIZED['transformer']}+style=llama+key_heads=2",
}
"""Feature -> a workload that has it."""
STEPS = (
    *("torch:single", "torch:c10d", "torch:dp", "torch:ddp", "torch:zero1", "torch:zero2", "torch:fsdp", "torch:mp"),
    *(f"torch:deepspeed+zero_stage={stage}" for stage in (1, 2, 3)),
    *("torch:pp", "torch:pp+schedule=zbv_zero_bubble", "torch:pp+schedule=1f1b+devices=4", "torch:tp", "torch:rpc"),
    *("torch:cp", "torch:cp+mesh=data=2,context=2"),
    *("torch:tp+sequence_parallel=true", "torch:rpc_parameter_server", "torch:fsdp+mesh=data=2,shard=2"),
    *(f"torch:hybrid+mesh=pipe=2,{axis}=2" for axis in ("data", "shard", "tensor")),
    *("tf:single", "tf:mirrored", "tf:multi_worker_mirrored", "tf:central_storage", "tf:tpu", "tf:parameter_server"),
    *("tf:parameter_server+parameter_servers=2", "tf:dtensor", "tf:dtensor+mesh=tensor=2"),
    *("tf:dtensor+mesh=data=2,tensor=2", "tf:context", "tf:context+mesh=data=2,context=2"),
    *("torch:ep", "torch:ep+mesh=data=2,expert=2", "tf:expert"),
)
"""Every row, and the options that make its step another one."""


def refused(feature: str, cell: str) -> str:
    """Why a cell cannot take a feature; "" if it can."""
    try:
        parse(Cell.parse(_sized(cell)).apply_to(RunConfig(workload=_workload(feature, cell), batch_size=48)))
    except ConfigError as error:
        return str(error)
    return ""


def _workload(feature: str, cell: str) -> str:
    """A workload that has the feature, and what the row of a cell needs."""
    workload, needs = traced_once(cell.partition(":")[0], FEATURES[feature]), needed(row_of(cell))
    return workload if not needs or "experts" in workload or "gpt" not in workload else workload + needs


def _sized(cell: str) -> str:
    """A cell on two devices, unless it says how many or has but one."""
    row = row_of(cell)
    return cell if "devices=" in cell or "mesh=" in cell or not row.axes else f"{cell}+devices=2"


FURTHER = (
    *(("tied", cell) for cell in ("torch:tp+clip_norm=0.1", "torch:pp+clip_norm=0.1")),
    ("dropout", "torch:hybrid+mesh=pipe=2,tensor=2+clip_norm=0.1"),
    *(
        (feature, f"{row}+accumulation_steps=2")
        for row in ("torch:ddp", "tf:mirrored")
        for feature in ("dropout", "ignored", "norm", "experts")
    ),
)
"""With a technique that a feature meets."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("feature", "cell"),
    [
        pytest.param(*case, id="-".join(case), marks=getattr(pytest.mark, case[1].partition(":")[0]))
        for case in (*itertools.product(FEATURES, STEPS), *FURTHER)
    ],
)
def test_a_feature_takes_the_same_step_at_the_predicted_cost(run_cell: RunCell, feature: str, cell: str) -> None:
    """Each feature under every step; `make test` has each in each way of adding up in `test_covered.py`."""
    if why := refused(feature, cell):
        pytest.skip(why)
    dtype = "float32" if "deepspeed" in cell else "float64"
    result = run_cell(_sized(cell), _workload(feature, cell), dtype=dtype, steps=6)
    assert result.parity.passed, result.parity.reason
    sends_what_was_predicted(result)
    keeps_what_was_predicted(result)
    for row, predicted in zip(result.processes, result.predicted.devices(), strict=True):
        for name in ("params_bytes", "params_peak_bytes", "gradients_bytes", "optimizer_bytes"):
            assert getattr(row, name) == getattr(predicted, name), name
    record(result)


def test_every_row_is_among_the_steps() -> None:
    assert {cell.partition("+")[0] for cell in STEPS} == {f"{framework}:{row.name}" for framework, row in every_row()}


@pytest.mark.parametrize(
    ("feature", "cell"), [pytest.param(*each, id="-".join(each)) for each in itertools.product(FEATURES, STEPS)]
)
def test_a_feature_is_taken_or_refused_with_the_reason(feature: str, cell: str) -> None:
    info, why, feature = row_of(cell), refused(feature, cell), feature.rpartition(" ")[2]
    of_the_model = ("needs a transformer", "of our transformer", "along tensor", "mixtures of experts")
    if any(each in why for each in of_the_model):
        return
    assert bool(why) == (feature in info.refuses)
    if why:
        assert f"does not take +{feature}=: {info.refuses[feature]}" in why


@pytest.mark.parametrize("row", [pytest.param(row, id=f"{f}:{row.name}") for f, row in every_row()])
def test_what_a_row_refuses_is_a_technique_or_a_feature(row: StrategyInfo) -> None:
    features = {name for workload in map(workload_named, WORKLOADS) for name in flags(workload.model)}
    assert {*row.refuses} <= features | {*flags(RunConfig().techniques)}


@pytest.mark.torch
def test_a_tied_run_moves_between_a_pipeline_and_others(run_cell: RunCell, tmp_path: Path) -> None:
    shared = {"dtype": "float64", "keep_state": True}
    first, second = str(tmp_path / "first"), str(tmp_path / "second")
    run_cell("torch:pp+devices=2", FEATURES["tied"], steps=3, out=first, **shared)
    run_cell("torch:tp+devices=2", FEATURES["tied"], steps=5, out=second, start_from=first, **shared)
    result = run_cell("torch:pp+devices=2", FEATURES["tied"], steps=7, start_from=second, **shared)
    assert result.parity.passed, result.parity.reason


def test_a_hybrid_never_unties() -> None:
    config = RunConfig(workload=FEATURES["tied"], batch_size=48)
    cell = "torch:hybrid+schedule=zbv_zero_bubble+mesh=pipe=2,tensor=2"
    with pytest.raises(ConfigError, match="tied between them would be two; choose another --schedule, or torch:pp"):
        parse(Cell.parse(cell).apply_to(config))
    assert parse(Cell.parse(cell).apply_to(dataclasses.replace(config, workload=SIZED["transformer"])))


@pytest.mark.torch
@pytest.mark.parametrize("cell", ["torch:tp+devices=2", "torch:single"])
def test_dropout_inside_a_pair_of_layers_drops_the_same_elements(run_cell: RunCell, cell: str) -> None:
    result = run_cell(cell, f"{SIZED['mlp']}+dropout=0.3", dtype="float64", steps=4)
    assert result.parity.passed, result.parity.reason
    keeps_what_was_predicted(result)


@pytest.mark.parametrize(
    "cell",
    [
        pytest.param("torch:tp+devices=2", marks=pytest.mark.torch),
        pytest.param("torch:pp+devices=2+schedule=zbv_zero_bubble", marks=[pytest.mark.torch, pytest.mark.slow]),
        pytest.param("torch:single+recompute=true", marks=[pytest.mark.torch, pytest.mark.slow]),
        pytest.param("tf:single", marks=[pytest.mark.tf, pytest.mark.slow]),
    ],
)
def test_a_relu_with_dropout_behind_keeps_an_output_that_no_layer_takes(run_cell: RunCell, cell: str) -> None:
    result = run_cell(cell, f"{SIZED['mlp']}+activation=relu+dropout=0.1", steps=2, optimizer="sgd")
    assert result.parity.passed, result.parity.reason
    keeps_what_was_predicted(result)
    assert all(row.activations_bytes is not None for row in result.predicted.devices())


def test_no_dropout_is_the_model_without() -> None:
    """In every row, the reference and the predicted costs: they all take what is trained from here."""
    for framework, row in every_row():
        config = RunConfig(framework=framework, strategy=row.name, workload=FEATURES["dropout"], dropout=False)
        assert (
            parse(config).workload.digest
            == parse(dataclasses.replace(config, workload=SIZED["transformer"])).workload.digest
        )


@pytest.mark.torch
def test_no_dropout_in_a_run_and_what_it_says(run_cell: RunCell) -> None:
    off = run_cell("torch:single", f"{SIZED['mlp']}+dropout=0.3", dtype="float64", steps=4, dropout=False)
    plain = run_cell("torch:single", SIZED["mlp"], dtype="float64", steps=4)
    assert off.losses == plain.losses and off.parity.passed
    assert "without dropout" in caption(alone([off]), width=200)


@pytest.mark.torch
def test_a_run_that_continues_drops_what_an_uninterrupted_one_drops(run_cell: RunCell, tmp_path: Path) -> None:
    shared, first = {"dtype": "float64", "keep_state": True}, str(tmp_path / "first")
    run_cell("torch:ddp+devices=2", FEATURES["dropout"], steps=3, out=first, **shared)
    result = run_cell("torch:fsdp+devices=2", FEATURES["dropout"], steps=6, start_from=first, **shared)
    assert result.parity.passed, result.parity.reason
