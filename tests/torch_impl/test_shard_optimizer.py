"""Optimizer state that the replicas of a pipeline share: beside techniques, gone on from on other meshes, of users' models."""

from pathlib import Path

import pytest

from samestep.common.runtime.checkpoints.committed import find_checkpoints
from samestep.common.runtime.checkpoints.rank_state import name_of
from samestep.common.techniques import Techniques
from tests.cells import SIZED, slow
from tests.conftest import RunCell
from tests.own import odd_zoo
from tests.torch_impl.ledgers import bytes_of, obeys_its_law

pytestmark = pytest.mark.torch

SPREAD = "torch:hybrid+shard_optimizer=true"
MESH = "pipe=2,data=2"
QUICK = {"dtype": "float64", "optimizer": "adamw", "devices": None}
CLIPPED = Techniques(clip_norm=0.1)


@pytest.mark.parametrize(
    ("mesh", "other"),
    [
        (MESH, "data=2"),
        *(
            pytest.param(*each, marks=pytest.mark.slow)
            for each in ((MESH, "data=2,tensor=2"), ("data=2,tensor=2", MESH), ("data=4", "pipe=2,data=2,tensor=2"))
        ),
    ],
)
def test_a_run_goes_on_on_another_mesh(run_cell: RunCell, tmp_path: Path, mesh: str, other: str) -> None:
    """From what each rank saved of what it updates; gradients are clipped by the norm of all of them."""
    fields = {**QUICK, "techniques": CLIPPED, "steps": 6}
    out = tmp_path / "run"
    whole = run_cell(SPREAD, SIZED["mlp"], mesh=mesh, out=str(out), save_every="3", **fields)
    assert whole.parity.passed, whole.parity.reason
    obeys_its_law(whole)
    (found,) = find_checkpoints(out)
    assert sorted(found.commit.files) == [name_of(rank) for rank in range(len(whole.processes))]
    rest = run_cell(SPREAD, SIZED["mlp"], mesh=other, start_from=str(found.path), **fields)
    assert rest.parity.passed, rest.parity.reason
    assert rest.losses == pytest.approx(whole.losses[3:], rel=1e-12)


@pytest.mark.parametrize(
    ("cell", "mesh"),
    [
        pytest.param(*each, marks=pytest.mark.slow)
        for each in (
            (f"{SPREAD}+schedule=interleaved_1f1b+microbatches=4", MESH),
            (f"{SPREAD}+schedule=1f1b+microbatches=2+accumulation_steps=2+clip_norm=0.1", "pipe=2,data=2,tensor=2"),
            (f"{SPREAD}+schedule=1f1b+microbatches=2+recompute=true", MESH),
            (f"{SPREAD}+attention_exchange=ring+clip_norm=0.1", "pipe=2,context=2"),
        )
    ],
)
def test_it_composes_with_schedules_and_techniques(run_cell: RunCell, cell: str, mesh: str) -> None:
    result = run_cell(cell, "prose-gpt+layers=4+width=32+context=16", mesh=mesh, **QUICK)
    assert result.parity.passed, result.parity.reason
    obeys_its_law(result)


@pytest.mark.slow
def test_it_composes_with_mixed_precision(run_cell: RunCell) -> None:
    fields = {**QUICK, "dtype": "float32"}
    result = run_cell(f"{SPREAD}+precision=bf16", SIZED["transformer"], mesh=MESH, **fields)
    assert result.parity.passed, result.parity.reason
    assert bytes_of(result.processes) == bytes_of(result.predicted.devices())


@pytest.mark.parametrize("optimizer", slow("muon", "sgd", "adafactor"))
@pytest.mark.parametrize("mesh", [MESH, "data=4"])
def test_each_optimizer_keeps_what_was_predicted(run_cell: RunCell, optimizer: str, mesh: str) -> None:
    fields = {**QUICK, "optimizer": optimizer}
    result = run_cell(SPREAD, SIZED["transformer"], mesh=mesh, **fields)
    assert result.parity.passed, result.parity.reason
    assert bytes_of(result.processes) == bytes_of(result.predicted.devices())


@pytest.mark.parametrize("model", slow("UNET", "UNET_GROUPS"))
def test_a_model_of_ones_own(run_cell: RunCell, model: str) -> None:
    zoo = Path(odd_zoo.__file__)
    fields = {"model": f"{zoo}:{model}", "data": f"{zoo.with_name('torch_zoo.py')}:points", **QUICK}
    fields |= {"optimizer": "own"} if model == "UNET_GROUPS" else {}
    result = run_cell(SPREAD, "digits-mlp", mesh=MESH, **fields)
    assert result.parity.passed, result.parity.reason
    assert bytes_of(result.processes) == bytes_of(result.predicted.devices())
