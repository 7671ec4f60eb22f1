"""mirrored and central_storage: several devices in one process."""

import dataclasses

import pytest

from samestep.common.errors import ConfigError, Unavailable
from samestep.common.request import RunConfig, launch_of
from samestep.common.run import parse
from samestep.common.runtime.parent.launcher import Launcher
from samestep.common.runtime.records import RunResult
from tests.cells import SHALLOW, SIZED
from tests.conftest import RunCell
from tests.tf_impl.conftest import RunTroubled, memory

pytestmark = pytest.mark.tf


def costs_what_was_predicted(result: RunResult) -> None:
    assert memory(result.processes) == memory(result.predicted.devices())
    assert tuple(result.exchanges) == result.predicted.exchanges
    assert sum(row.sent_bytes_per_step for row in result.processes) == result.predicted.sent_bytes_per_step == 0


@pytest.mark.parametrize("devices", [pytest.param(2, marks=pytest.mark.slow), 4])
@pytest.mark.parametrize("reduce", ["ring", "reduction_to_one_device", "hierarchical_copy"])
def test_every_reduction_takes_the_same_step(run_cell: RunCell, reduce: str, devices: int) -> None:
    result = run_cell(f"tf:mirrored+reduce={reduce}", SHALLOW, devices=devices, dtype="float64", optimizer="sgd")
    assert result.parity.passed, result.parity.reason
    costs_what_was_predicted(result)


@pytest.mark.slow
@pytest.mark.parametrize("devices", [2, 4])
@pytest.mark.parametrize("model", ["ranker", "mlp", "transformer"])
def test_central_storage_holds_every_byte_in_one_place(run_cell: RunCell, model: str, devices: int) -> None:
    result = run_cell("tf:central_storage", SIZED[model], devices=devices, optimizer="adamw", steps=5)
    costs_what_was_predicted(result)
    *compute, store = result.processes
    assert all(row.params_bytes == row.optimizer_bytes == 0 for row in compute)
    assert store.optimizer_bytes == 2 * store.params_bytes > 0


def test_hierarchical_copy_of_an_odd_number_is_refused(run_cell: RunCell) -> None:
    with pytest.raises(ConfigError, match="drop the last one's gradients; use an even number"):
        run_cell("tf:mirrored+reduce=hierarchical_copy", SIZED["mlp"], devices=3)


def test_an_unknown_reduction_names_the_nearest(run_cell: RunCell) -> None:
    with pytest.raises(ConfigError, match=r"'rink'\. Did you mean 'ring'"):
        run_cell("tf:mirrored+reduce=rink", SIZED["mlp"], devices=2)


def test_nccl_needs_gpus(launcher: Launcher, tmp_path) -> None:
    asked = RunConfig("tf", "mirrored", SIZED["mlp"], devices=64, batch_size=64, options={"reduce": "nccl"})
    asked = dataclasses.replace(asked, out=str(tmp_path / "run"))
    with pytest.raises(Unavailable, match="--reduce nccl needs 64 GPUs"):
        launcher.run(parse(asked), launch_of(asked))


@pytest.mark.parametrize("cell", ["tf:mirrored", "tf:central_storage"])
def test_replicas_run_side_by_side(run_troubled: RunTroubled, cell: str) -> None:
    result = run_troubled("replicas_meet", cell, SHALLOW, devices=2, steps=5, parity=True)
    assert result.parity.passed, result.parity.reason
