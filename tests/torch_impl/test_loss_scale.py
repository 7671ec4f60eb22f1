"""The loss scaler of fp16: it halves and doubles, no rank skips alone, and runs with it take the same step."""

import os
from pathlib import Path

import numpy as np
import pytest

from samestep.common.cell import Cell
from samestep.common.errors import ConfigError, Unavailable
from samestep.common.features.batch_norm.flag import STATISTICS
from samestep.common.program import SKIPPED
from samestep.common.request import RunConfig, launch_of
from samestep.common.run import parse
from samestep.common.runtime.parent.launcher import Launcher
from samestep.common.runtime.records import RunResult
from samestep.common.runtime.state_file import read_state
from tests.cells import SIZED, every_row, slow, usual
from tests.conftest import RunCell
from tests.ledgers import keeps_what_was_predicted, sends_what_was_predicted
from tests.lent import LentLauncher
from tests.parity.scaled_worker import FIRST_SCALE

MLP = SIZED["mlp"]
SPREAD = "hybrid+shard_optimizer=true"
"""Each rank updates some parameters, after all have unscaled, and clipped, the same gradients."""


@pytest.fixture(scope="module")
def scaled(launcher: Launcher) -> Launcher:
    """Starts workers that take fp16 on CPU cores."""
    return LentLauncher(launcher, "tests.parity.scaled_worker")


def trained(launcher: Launcher, out: Path, cell: str, first_scale: float = 2.0**16, **fields: object) -> RunResult:
    devices = None if "mesh=" in cell else 2
    given = {
        "workload": MLP,
        "devices": devices,
        "batch_size": 48,
        "steps": 8,
        "parity": True,
        "keep_state": True,
        **fields,
    }
    asked = Cell.parse(f"torch:{cell}+precision=fp16").apply_to(RunConfig(out=str(out), **given))
    return launcher.run(parse(asked), launch_of(asked), environment={FIRST_SCALE: str(first_scale)})


@pytest.mark.torch
@pytest.mark.parametrize(
    "cell",
    [
        "fsdp+clip_norm=0.5+accumulation_steps=2",
        *(pytest.param(cell, marks=pytest.mark.slow) for cell in ("ddp", "zero1", "tp+clip_norm=0.5", "c10d", "mp")),
        pytest.param("pp+clip_norm=0.5", marks=pytest.mark.slow),
        *slow(f"{SPREAD}+clip_norm=0.5+mesh=data=2", f"{SPREAD}+clip_norm=0.5+accumulation_steps=2+mesh=pipe=2,data=2"),
    ],
)
def test_a_scaled_step_is_the_same_step(scaled: Launcher, tmp_path: Path, cell: str) -> None:
    result = trained(scaled, tmp_path / "run", cell)
    assert result.parity.passed, result.parity.reason
    assert result.parity.steps == 8
    sends_what_was_predicted(result)
    kept = read_state(tmp_path / "run").local
    assert [float(own["loss_scale"]) for own in kept] == [2.0**16] * len(result.processes)


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.parametrize("statistics", STATISTICS)
@pytest.mark.parametrize("cell", ["ddp", "fsdp"])
def test_a_scaled_step_takes_batch_statistics(scaled: Launcher, tmp_path: Path, cell: str, statistics: str) -> None:
    result = trained(scaled, tmp_path / "run", cell, workload=f"{MLP}+norm=batch", batch_norm=statistics)
    assert result.parity.passed, result.parity.reason
    keeps_what_was_predicted(result)


@pytest.mark.torch
@pytest.mark.parametrize("cell", ["fsdp", *slow(f"{SPREAD}+mesh=data=2")])
def test_a_scale_that_overflows_is_halved_until_it_does_not(scaled: Launcher, tmp_path: Path, cell: str) -> None:
    """Every rank skips the same steps; what was judged is what came before, and a later run goes on with the scale."""
    result = trained(scaled, tmp_path / "run", cell, first_scale=2.0**22)
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
    more = trained(scaled, tmp_path / "more", cell, steps=10, start_from=str(tmp_path / "run"), parity=False)
    again = read_state(tmp_path / "more").local[0]
    assert len(more.losses) == 2
    assert [int(step) for step in again[SKIPPED]][: len(skipped)] == skipped
    assert float(again["loss_scale"]) == 2.0 ** (22 - len(again[SKIPPED]))


@pytest.mark.torch
@pytest.mark.parametrize("cell", ["fsdp", *slow("zero1", "pp", f"{SPREAD}+mesh=pipe=2,data=2")])
def test_a_run_that_took_no_update_has_a_state(scaled: Launcher, tmp_path: Path, cell: str) -> None:
    fields = {"optimizer": "adamw", "parity": False}
    trained(scaled, tmp_path / "run", cell, first_scale=2.0**60, steps=2, **fields)
    state = read_state(tmp_path / "run")
    assert state.updates == 0
    assert all((array == 0).all() for arrays in state.slots.values() for array in arrays.values())
    more = trained(scaled, tmp_path / "more", cell, steps=4, start_from=str(tmp_path / "run"), **fields)
    assert read_state(tmp_path / "more").skipped == 4, more.losses


SKIPPING = {"optimizer": "adamw", "first_scale": 2.0**22, "parity": False}


@pytest.fixture(scope="module")
def begun(scaled: Launcher, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 8 steps, of which the first ones were skipped."""
    out = tmp_path_factory.mktemp("begun") / "run"
    trained(scaled, out, "fsdp", **SKIPPING)
    state = read_state(out)
    assert state.skipped == len(state.local[0][SKIPPED]) == 8 - state.updates > 0
    return out


@pytest.fixture(scope="module")
def next_losses(scaled: Launcher, tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    """The losses of the four steps that the run would have taken next."""
    return trained(scaled, tmp_path_factory.mktemp("whole") / "run", "fsdp", steps=12, **SKIPPING).losses[8:]


@pytest.mark.torch
def test_a_skipped_step_is_no_update_when_the_run_continues(
    scaled: Launcher, begun: Path, next_losses: list[float], tmp_path: Path
) -> None:
    """AdamW corrects its bias by the number of updates: counted by steps, the next losses were other ones."""
    more = trained(scaled, tmp_path / "more", "fsdp", steps=12, start_from=str(begun), **SKIPPING)
    assert more.losses == next_losses


@pytest.mark.parametrize(
    "cell",
    [
        pytest.param("torch:single", marks=pytest.mark.torch),
        *(
            pytest.param(cell, marks=[getattr(pytest.mark, cell.partition(":")[0]), pytest.mark.slow])
            for cell in ("tf:mirrored", "tf:dtensor", "tf:parameter_server", "torch:rpc", "torch:rpc_parameter_server")
        ),
    ],
)
def test_nor_when_it_continues_where_nothing_is_skipped(
    run_cell: RunCell, begun: Path, next_losses: list[float], tmp_path: Path, cell: str
) -> None:
    fields = {"optimizer": "adamw", "start_from": str(begun), "steps": 12, "out": str(tmp_path / "run")}
    devices = 1 if cell == "torch:single" else 2
    result = run_cell(cell, MLP, devices=devices, dtype="float64", keep_state=True, **fields)
    assert result.parity.passed, result.parity.reason
    assert result.losses == pytest.approx(next_losses, rel=2e-4), "fp16 takes about the same steps"
    assert read_state(tmp_path / "run").skipped == read_state(begun).skipped


@pytest.mark.torch
def test_the_scale_doubles_after_many_good_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    from samestep.torch_impl.step_context import StepContext
    from samestep.torch_impl.techniques import precision

    monkeypatch.setattr(precision, "PATIENCE", 3)
    context = StepContext()
    scaler = precision.LossScaler(context)
    start = context.seed_gradient
    scales = []
    for step, worst in enumerate((1.0, 1.0, 1.0, np.inf, 1.0, np.nan, 1.0, 1.0, 1.0)):
        gradients = [torch.tensor([worst]), torch.ones(2)]
        assert scaler.unscale(gradients, step) == np.isfinite(worst)
        scales.append(context.seed_gradient / start)
    assert scales == [1, 1, 2, 1, 1, 0.5, 0.5, 0.5, 1]
    assert scaler.skipped == [3, 5]


@pytest.mark.torch
def test_fp16_needs_a_gpu(run_cell: RunCell, launcher: Launcher, tmp_path: Path) -> None:
    config = Cell.parse("torch:single+precision=fp16").apply_to(
        RunConfig(workload=MLP, steps=2, out=str(tmp_path / "run"))
    )
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
        config = Cell.parse(f"{framework}:{row.name}+precision=fp16").apply_to(RunConfig(workload=usual(row)))
        if "precision" in row.refuses:
            continue
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
