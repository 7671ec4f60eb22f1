"""A user's own torch model: every strategy that can take it takes the steps of the model itself on one device."""

import math
import re
from pathlib import Path

import pytest

import samestep
from samestep.common.cell import Cell
from samestep.common.judging.conclusion import conclude_missed
from samestep.common.request import UNIT_ROUNDOFF, RunConfig, launch_of
from samestep.common.run import parse
from samestep.common.runtime.parent.launcher import Launcher
from samestep.common.runtime.records import RunResult
from samestep.common.runtime.state_file import read_state
from samestep.experiments.printing import tables
from tests.cells import slow
from tests.conftest import RunCell
from tests.lent import LentLauncher, lend
from tests.own.asked import own
from tests.results import alone

pytestmark = pytest.mark.torch


def check(result: RunResult, cell: str) -> None:
    assert result.parity.passed, f"{cell}: {result.parity.reason}"
    assert result.parity.reference == "torch:single"
    measured = max(row.state_bytes for row in result.processes)
    assert measured == max(row.state_bytes for row in result.predicted.footprints)
    sent = sum(row.sent_bytes_per_step for row in result.processes)
    # As for our own models: tensorpipe and DeepSpeed add bytes of their own, the more the smaller the tensors.
    assert sent == pytest.approx(result.predicted.sent_bytes_per_step, rel=0.03, abs=2048)


@pytest.mark.parametrize(
    "cell",
    [
        "dp",
        "fsdp",
        *slow("ddp", "c10d", "zero1", "zero2", "deepspeed", "deepspeed+zero_stage=3", "rpc_parameter_server"),
    ],
)
def test_a_gpt_with_tied_embeddings_needs_no_plan(run_cell: RunCell, cell: str) -> None:
    dtype = "float32" if cell.startswith("deepspeed") else "float64"
    check(run_cell(f"torch:{cell}", "digits-mlp", devices=2, dtype=dtype, **own("GPT")), cell)


@pytest.mark.parametrize("cell", ["rpc", "hybrid+mesh=pipe=2,tensor=2", *slow("mp", "pp", "tp")])
def test_segments_and_a_tensor_plan_split_it(run_cell: RunCell, cell: str) -> None:
    devices = {} if "mesh" in cell else {"devices": 2}
    result = run_cell(f"torch:{cell}", "digits-mlp", dtype="float64", **devices, **own("SPLIT_GPT"))
    assert result.parity.passed, result.parity.reason


@pytest.mark.parametrize("model", ["LSTM", *slow("REGRESSION", "HUBER")])
def test_other_models_and_losses(run_cell: RunCell, model: str) -> None:
    check(run_cell("torch:ddp", "digits-mlp", devices=2, dtype="float64", **own(model)), model)


@pytest.mark.parametrize("cell", ["pp", *slow("dp", "fsdp", "mp", "rpc", "rpc_parameter_server")])
def test_inputs_of_several_arrays(run_cell: RunCell, cell: str) -> None:
    check(run_cell(f"torch:{cell}", "digits-mlp", devices=2, dtype="float64", **own("MASKED")), cell)


def test_the_loss_is_the_metric_of_a_loss_of_ones_own(run_cell: RunCell) -> None:
    result = run_cell("torch:single", "digits-mlp", **own("HUBER"))
    assert (result.metric_name, result.metric_direction) == ("loss", "lower")
    assert result.metric_value == pytest.approx(result.losses[-1], rel=1)  # of other examples


def test_a_metric_of_ones_own(run_cell: RunCell) -> None:
    """A function of NumPy arrays; nobody knows whether more of it is better."""
    result = run_cell("torch:single", "digits-mlp", all_held_out=True, **own("WITHIN"))
    assert (result.metric_name, result.metric_direction) == ("within_one", "")
    assert 0 < result.metric_value <= 1 and result.metric_value * 48 == pytest.approx(round(result.metric_value * 48))


@pytest.mark.parametrize("cell", ["zero1", "deepspeed", *slow("ddp", "fsdp", "pp", "rpc_parameter_server")])
def test_an_optimizer_of_ones_own(run_cell: RunCell, cell: str) -> None:
    dtype = "float32" if cell == "deepspeed" else "float64"
    result = run_cell(f"torch:{cell}", "digits-mlp", devices=2, dtype=dtype, **own("ADAM"))
    check(result, cell)
    assert (result.optimizer, result.config.learning_rate) == ("own", 2**-8)


def test_an_optimizer_of_ones_own_is_another_one_than_ours(run_cell: RunCell) -> None:
    losses = [run_cell("torch:single", "digits-mlp", optimizer=name, **own("ADAM")).losses for name in ("own", "adamw")]
    assert losses[0][0] == losses[1][0] and losses[0][1] != losses[1][1]


def test_a_resnet_on_one_device(run_cell: RunCell) -> None:
    result = run_cell("torch:single", "digits-mlp", **own("RESNET"))
    assert result.parity.passed, result.parity.reason
    assert result.metric_name == "accuracy"


def test_buffers_are_state(run_cell: RunCell, tmp_path: Path) -> None:
    fields = {"keep_state": True, "parity": False, **own("RESNET")}
    whole = run_cell("torch:single", "digits-mlp", steps=6, out=str(tmp_path / "whole"), **fields)
    run_cell("torch:single", "digits-mlp", steps=3, out=str(tmp_path / "begun"), **fields)
    rest = {"start_from": str(tmp_path / "begun"), "out": str(tmp_path / "rest")}
    assert run_cell("torch:single", "digits-mlp", steps=6, **rest, **fields).losses == whole.losses[3:]
    states = [read_state(tmp_path / name).buffers for name in ("whole", "rest", "begun")]
    assert all((states[0][name] == states[1][name]).all() for name in states[0])
    assert not all((states[0][name] == states[2][name]).all() for name in states[0])


def test_buffers_stay_on_the_workers_of_a_server(run_cell: RunCell, tmp_path: Path) -> None:
    """Which are the replicas of DDP: the first one's running statistics are the run's, and decide the metric."""
    fields = {"dtype": "float64", "devices": 2, "steps": 4, "keep_state": True, "parity": False, **own("RESNET")}
    cells = ("torch:ddp", "torch:rpc_parameter_server")
    results = [run_cell(cell, "digits-mlp", out=str(tmp_path / cell), **fields) for cell in cells]
    kept, served = (read_state(tmp_path / cell).buffers for cell in cells)
    assert any("running_var" in name for name in kept) and list(kept) == list(served)
    assert all(kept[name] == pytest.approx(served[name], rel=1e-9) for name in kept)
    assert results[1].metric_value == results[0].metric_value


@pytest.fixture
def lent(launcher: Launcher, monkeypatch: pytest.MonkeyPatch) -> None:
    """The functions of samestep use the tests' own launcher, which has imported torch already."""
    lend(launcher, monkeypatch)


@pytest.mark.usefixtures("lent")
def test_a_prediction_is_that_of_the_run(run_cell: RunCell) -> None:
    predicted = samestep.predict("torch:ddp", devices=2, batch_size=48, batch_norm="sync", **own("RESNET"))
    ran = run_cell("torch:ddp", "digits-mlp", devices=2, batch_norm="sync", parity=False, **own("RESNET"))
    assert predicted.rows[0].ledger == ran.predicted


@pytest.mark.usefixtures("lent")
def test_a_comparison_has_no_row_of_the_oracle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    comparison = samestep.compare(["torch:ddp", "torch:zero1"], steps=5, parity=True, **own("LSTM"))
    assert [(row.cell, row.status) for row in comparison.rows] == [
        ("torch:ddp", "same step"),
        ("torch:zero1", "same step"),
    ]
    assert [row.results for row in samestep.load(comparison.directory).rows] == [row.results for row in comparison.rows]


# --- what cannot be the same --------------------------------------------------------------------------------------------

OFF = r"\. The losses are off by \S+;"


@pytest.mark.parametrize(
    ("model", "reason", "remedy"),
    [
        (
            "RESNET",
            rf"the local statistics of 5 BatchNorm layers \(1, 4.norm1, 4.norm2, ...\){OFF} with these frozen "
            r"\(--batch-norm frozen\)",
            {"batch_norm": "frozen"},
        ),
        pytest.param(
            "DROPOUT",
            rf"the random numbers of 1 layer \(1\){OFF} with these switched off \(--no-dropout\)",
            {"dropout": False},
            marks=pytest.mark.slow,
        ),
        (
            "FUNCTIONAL_DROPOUT",
            rf"the random numbers of 1 layer \(its forward pass\){OFF} with these switched off \(--no-dropout\)",
            {"dropout": False},
        ),
    ],
)
def test_what_the_model_does_is_told_from_what_the_strategy_does(
    run_cell: RunCell, model: str, reason: str, remedy: dict[str, object]
) -> None:
    fields = {"devices": 2, "dtype": "float64", **own(model)}
    result = run_cell("torch:ddp", "digits-mlp", **fields)
    assert result.parity.passed is False
    assert re.fullmatch(rf"your model is not the same function on shards: {reason}, by [0-9.e-]+", result.parity.reason)
    assert conclude_missed([("torch:ddp", result.parity.attribution)]).startswith(
        "torch:ddp is right; your model is not the"
    )
    mended = run_cell("torch:ddp", "digits-mlp", **fields, **remedy)
    assert mended.parity.passed
    said = {"batch_norm": "batch normalization frozen", "dropout": "without dropout"}[next(iter(remedy))]
    assert said in tables.caption(alone([mended]), width=400)


def test_micro_batches_have_local_statistics_as_well(run_cell: RunCell) -> None:
    result = run_cell("torch:single+accumulation_steps=2", "digits-mlp", dtype="float64", **own("RESNET"))
    assert result.parity.passed is False
    assert "the local statistics of 5 BatchNorm layers" in result.parity.reason


def test_the_cause_is_found_in_a_continued_run_as_well(run_cell: RunCell, tmp_path: Path) -> None:
    fields = {"devices": 2, "dtype": "float64", **own("RESNET")}
    begun = str(tmp_path / "begun")
    run_cell("torch:ddp", "digits-mlp", steps=3, out=begun, keep_state=True, parity=False, **fields)
    result = run_cell("torch:ddp", "digits-mlp", steps=6, start_from=begun, **fields)
    assert result.parity.passed is False
    assert "on shards: the local statistics of 5 BatchNorm layers" in result.parity.reason


@pytest.mark.parametrize("cell", ["c10d+ring=true", *slow("ddp", "zero2", "deepspeed", "rpc")])
def test_statistics_of_the_whole_batch_make_it_the_same_function(run_cell: RunCell, cell: str) -> None:
    """Where ranks share the batch they exchange the statistics, as predicted."""
    dtype = "float32" if cell == "deepspeed" else "float64"
    result = run_cell(f"torch:{cell}", "digits-mlp", devices=2, dtype=dtype, batch_norm="sync", **own("RESNET"))
    check(result, cell)


@pytest.mark.parametrize("strategy", ["ddp", *slow("zero1")])
def test_the_buffers_that_ddp_broadcasts_are_predicted(run_cell: RunCell, strategy: str) -> None:
    fields = {"devices": 2, "dtype": "float64", "batch_norm": "frozen", **own("RESNET")}
    result = run_cell(f"torch:{strategy}", "digits-mlp", **fields)
    assert [send for send in result.processes[0].sends if send.phase == "forward"] == [
        send for send in result.predicted.sends if send.phase == "forward"
    ]
    assert sum(row.sent_bytes_per_step for row in result.processes) == result.predicted.sent_bytes_per_step


def broken(launcher: Launcher, out: Path, cell: str, model: str, **fields: object) -> RunResult:
    """Runs a cell whose exchange forgets a hundredth of what it sums."""
    asked = {"devices": 2, "steps": 20, "batch_size": 48, "out": str(out), **fields, **own(model)}
    with LentLauncher(launcher, "tests.own.broken_worker") as lent:
        config = lent.describe(Cell.parse(cell).apply_to(RunConfig(**asked)))
        return lent.run(parse(config), launch_of(config))


def test_a_wrong_strategy_is_not_excused(launcher: Launcher, tmp_path: Path) -> None:
    """The exchange of a strategy is broken: without the suspects, the deviation is still there."""
    result = broken(launcher, tmp_path / "run", "torch:c10d", "RESNET", dtype="float64")
    assert result.parity.passed is False
    assert re.search(
        r"without the local statistics of 5 BatchNorm layers \(1, 4.norm1, 4.norm2, ...\) still by \S+: ",
        result.parity.reason,
    )


# --- mixed precision ----------------------------------------------------------------------------------------------------


def test_batch_normalisation_whose_parameters_are_gathered_in_two_bytes(run_cell: RunCell) -> None:
    """The bound is of 27 roundings, which `test_roundings.py` derives."""
    fields = {"devices": 2, "steps": 5, "batch_norm": "frozen", **own("RESNET")}
    result = run_cell("torch:fsdp+precision=bf16", "digits-mlp", **fields)
    check(result, "fsdp")
    assert result.parity.loss_bound == pytest.approx(math.sqrt(2 * 27) / 256)
    assert UNIT_ROUNDOFF["float32"] < result.parity.max_relative_loss < result.parity.loss_bound


def test_a_mistake_that_the_bound_of_two_bytes_does_not_show(launcher: Launcher, tmp_path: Path) -> None:
    """AdamW hardly sees a hundredth of the gradients; without --precision the same steps do."""
    result = broken(launcher, tmp_path / "run", "torch:c10d+precision=bf16", "REGRESSION")
    assert result.parity.passed is False and result.parity.first_bad_step is None
    assert result.parity.max_relative_loss < result.parity.loss_bound
    assert re.fullmatch(
        r"without --precision its first 5 steps are off by \S+ in float64 \(allowed 1e-12\)", result.parity.reason
    )


@pytest.mark.slow
def test_local_statistics_are_not_lost_in_the_bound_of_two_bytes(run_cell: RunCell) -> None:
    result = run_cell("torch:ddp+precision=bf16", "digits-mlp", devices=2, **own("RESNET"))
    assert result.parity.passed is False and result.parity.max_relative_loss < result.parity.loss_bound
    assert "on shards: the local statistics of 5 BatchNorm layers" in result.parity.reason


@pytest.mark.slow
@pytest.mark.parametrize(("model", "rate"), [("REGRESSION", 0.06), ("LSTM", 0.3)])
def test_a_hot_curve_is_judged_by_single_steps(
    launcher: Launcher, run_cell: RunCell, tmp_path: Path, model: str, rate: float
) -> None:
    """Rounding is amplified until the curve leaves its bound; a wrong exchange is not excused by that."""
    fields = {"optimizer": "adamw", "learning_rate": rate, "steps": 100, "parity": True}
    result = run_cell("torch:c10d+precision=bf16", "digits-mlp", devices=2, **fields, **own(model))
    assert result.parity.passed and result.parity.is_amplified, result.parity.reason
    assert "every step that is replayed from its own state is that of torch:single in bf16" in result.parity.reason
    assert result.parity.max_relative_loss > result.parity.loss_bound
    assert broken(launcher, tmp_path / "run", "torch:c10d+precision=bf16", model, **fields).parity.passed is False


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["ddp", "fsdp", "c10d"])
def test_statistics_of_the_whole_batch_in_two_bytes(run_cell: RunCell, strategy: str) -> None:
    fields = {"devices": 2, "batch_norm": "sync", **own("RESNET")}
    check(run_cell(f"torch:{strategy}+precision=bf16", "digits-mlp", **fields), strategy)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("cell", "model"),
    [
        ("ddp+accumulation_steps=2+clip_norm=0.5", "GPT"),
        ("fsdp+recompute=true", "GPT"),
        ("ddp+compile=true", "REGRESSION"),
    ],
)
def test_what_people_combine_with_two_bytes(run_cell: RunCell, cell: str, model: str) -> None:
    check(run_cell(f"torch:{cell}+precision=bf16", "digits-mlp", devices=2, timeout_seconds=300, **own(model)), cell)


@pytest.mark.slow
def test_fp16_has_its_scaler(launcher: Launcher, tmp_path: Path) -> None:
    asked = {"devices": 2, "steps": 8, "batch_size": 48, "out": str(tmp_path / "run"), **own("REGRESSION")}
    with LentLauncher(launcher, "tests.parity.scaled_worker") as lent:
        config = lent.describe(Cell.parse("torch:ddp+precision=fp16").apply_to(RunConfig(**asked)))
        result = lent.run(parse(config), launch_of(config))
    assert result.parity.passed, result.parity.reason
    assert result.parity.loss_bound == pytest.approx(math.sqrt(2 * 6) / 2048)
