"""The loss scaler of fp16: it halves and doubles, no rank skips alone, and runs with it take the same step."""

import os
from pathlib import Path

import numpy as np
import pytest

from samestep.common.errors import ConfigError, Unavailable
from samestep.common.program import SKIPPED
from samestep.common.request import RunConfig, launch_of
from samestep.common.run import parse
from samestep.common.runtime.parent.launcher import Launcher
from samestep.common.runtime.records import RunResult
from samestep.common.runtime.state_file import read_state
from samestep.experiments.arguments import apply_cell
from tests.cells import SIZED, every_row
from tests.conftest import RunCell
from tests.ledgers import sends_what_was_predicted
from tests.lent import LentLauncher
from tests.parity.scaled_worker import FIRST_SCALE

MLP = SIZED["mlp"]


@pytest.fixture(scope="module")
def scaled(launcher: Launcher) -> Launcher:
    """Starts workers that take fp16 on CPU cores."""
    return LentLauncher(launcher, "tests.parity.scaled_worker")


def trained(launcher: Launcher, out: Path, cell: str, first_scale: float = 2.0**16, **fields: object) -> RunResult:
    given = {"devices": 2, "batch_size": 48, "steps": 8, "parity": True, "keep_state": True, **fields}
    asked = apply_cell(f"torch:{cell}+precision=fp16", RunConfig(workload=MLP, out=str(out), **given))
    return launcher.run(parse(asked), launch_of(asked), environment={FIRST_SCALE: str(first_scale)})


@pytest.mark.torch
@pytest.mark.parametrize(
    "cell",
    [
        "fsdp+clip_norm=0.5+accumulation_steps=2",
        *(pytest.param(cell, marks=pytest.mark.slow) for cell in ("ddp", "zero1", "tp+clip_norm=0.5", "c10d", "mp")),
        pytest.param("pp+clip_norm=0.5", marks=pytest.mark.slow),
    ],
)
def test_a_scaled_step_is_the_same_step(scaled: Launcher, tmp_path: Path, cell: str) -> None:
    result = trained(scaled, tmp_path / "run", cell)
    assert result.parity.passed, result.parity.reason
    assert result.parity.steps == 8
    sends_what_was_predicted(result)
    kept = read_state(tmp_path / "run").local
    assert [float(own["loss_scale"]) for own in kept] == [2.0**16] * 2


@pytest.mark.torch
def test_a_scale_that_overflows_is_halved_until_it_does_not(scaled: Launcher, tmp_path: Path) -> None:
    """Every rank skips the same steps; what was judged is what came before, and a later run goes on with the scale."""
    result = trained(scaled, tmp_path / "run", "fsdp", first_scale=2.0**22)
    first, second = read_state(tmp_path / "run").local
    skipped = [int(step) for step in first[SKIPPED]]
    assert skipped[0] == 0
    assert len(skipped) < 8
    assert skipped == [int(step) for step in second[SKIPPED]]
    assert float(first["loss_scale"]) == float(second["loss_scale"]) == 2.0 ** (22 - len(skipped))
    assert result.parity.passed
    assert result.parity.steps == 1
    assert result.parity.reason == "judged to step 0, whose update the loss scaler skipped"
    assert result.losses[0] != result.losses[-1], "the others were taken"
    more = trained(scaled, tmp_path / "more", "fsdp", steps=10, start_from=str(tmp_path / "run"), parity=False)
    again = read_state(tmp_path / "more").local[0]
    assert len(more.losses) == 2
    assert [int(step) for step in again[SKIPPED]][: len(skipped)] == skipped
    assert float(again["loss_scale"]) == 2.0 ** (22 - len(again[SKIPPED]))


@pytest.mark.torch
def test_the_scale_doubles_after_many_good_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    from samestep.torch_impl.micro_batch import MICRO_BATCH
    from samestep.torch_impl.techniques import loss_scale

    monkeypatch.setattr(MICRO_BATCH, "loss_scale", 1.0)  # which is this process's, and is put back
    monkeypatch.setattr(loss_scale, "PATIENCE", 3)
    scaler = loss_scale.LossScaler()
    start = MICRO_BATCH.loss_scale
    scales = []
    for step, worst in enumerate((1.0, 1.0, 1.0, np.inf, 1.0, np.nan, 1.0, 1.0, 1.0)):
        gradients = [torch.tensor([worst]), torch.ones(2)]
        assert scaler.unscale(gradients, step) == np.isfinite(worst)
        scales.append(MICRO_BATCH.loss_scale / start)
    assert scales == [1, 1, 2, 1, 1, 0.5, 0.5, 0.5, 1]
    assert scaler.skipped == [3, 5]


@pytest.mark.torch
def test_fp16_needs_a_gpu(run_cell: RunCell, launcher: Launcher, tmp_path: Path) -> None:
    config = apply_cell("torch:single+precision=fp16", RunConfig(workload=MLP, steps=2, out=str(tmp_path / "run")))
    if not any(name.startswith("nvidia") for name in os.listdir("/dev")):
        with pytest.raises(Unavailable, match=r"--precision fp16 needs a GPU: .*; give --precision bf16 here"):
            launcher.run(parse(config), launch_of(config))


@pytest.mark.gpu
@pytest.mark.torch
@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_two_bytes_on_a_gpu(run_cell: RunCell, precision: str) -> None:
    """Never run so far: no machine of the project's has a GPU."""
    result = run_cell(f"torch:single+precision={precision}", SIZED["transformer"], optimizer="adamw")
    assert result.parity.passed, result.parity.reason
    assert not result.emulation


def test_a_row_without_a_scaler_takes_no_fp16() -> None:
    for framework, row in every_row():
        config = apply_cell(f"{framework}:{row.name}+precision=fp16", RunConfig(workload=MLP))
        if row.scales_loss:
            assert parse(config).arithmetic == "fp16"
        else:
            with pytest.raises(ConfigError, match=r"would vanish without a loss scaler.*give --precision bf16"):
                parse(config)
    assert {row.name for framework, row in every_row() if framework == "torch" and not row.scales_loss} == {
        "deepspeed",
        "rpc",
        "rpc_parameter_server",
    }
