"""dtensor: every layout that the split table makes is held against the oracle, and its cost against the cost model."""

import dataclasses

import pytest

from samestep.common.errors import ConfigError, WorkerFailed
from samestep.common.request import RunConfig, launch_of
from samestep.common.run import parse
from samestep.common.runtime.parent.launcher import Launcher
from samestep.common.runtime.records import RunResult
from samestep.common.workload.models.spec import num_params
from samestep.common.workload.table import resolve
from tests.cells import REGRESSION, SHALLOW, SIZED, slow, traced_once
from tests.conftest import RunCell
from tests.tf_impl.conftest import RunTroubled, memory

pytestmark = pytest.mark.tf
MODELS = {**SIZED, "regression": REGRESSION}


def costs_what_was_predicted(result: RunResult) -> None:
    assert memory(result.processes) == memory(result.predicted.devices())
    assert tuple(result.exchanges) == result.predicted.exchanges


@pytest.mark.parametrize("model", slow("transformer", "mlp", "cnn", "ranker", "regression"))
def test_every_sharded_layout(run_cell: RunCell, model: str) -> None:
    mesh = "data=2,tensor=2"
    shared = {"dtype": "float64", "optimizer": "adamw", "steps": 4}
    result = run_cell("tf:dtensor", traced_once("tf", MODELS[model]), mesh=mesh, **shared)
    assert result.parity.passed, result.parity.reason
    costs_what_was_predicted(result)
    whole = 8 * num_params(resolve(result.workload).model)
    assert all(row.params_bytes < 0.95 * whole for row in result.processes)


@pytest.mark.slow
def test_four_ways_along_tensor(run_cell: RunCell) -> None:
    result = run_cell("tf:dtensor", SIZED["transformer"], mesh="tensor=4", optimizer="sgd", steps=5)
    assert result.parity.passed, result.parity.reason
    costs_what_was_predicted(result)


@pytest.mark.parametrize("mesh", ["data=2,tensor=2", *slow("tensor=4")])
def test_two_clients_and_their_wire(run_cell: RunCell, mesh: str) -> None:
    sized = {"batch_size": 192, "dtype": "float64", "optimizer": "adamw", "steps": 8}
    result = run_cell("tf:dtensor+clients=2", "digits-mlp+width=512", mesh=mesh, **sized)
    assert result.parity.passed, result.parity.reason
    costs_what_was_predicted(result)
    sent = sum(row.sent_bytes_per_step for row in result.processes)
    predicted = result.predicted.sent_bytes_per_step
    assert abs(sent - predicted) <= 0.01 * predicted


@pytest.mark.parametrize(
    ("workload", "mesh", "options", "message"),
    [
        (SIZED["mlp"], "tensor=3", {}, r"layers/0/kernel \[64, 32\] does not split into 3 equal parts"),
        (SIZED["transformer"], "tensor=8", {}, "4 heads do not divide among a tensor axis of 8"),
        (SIZED["mlp"], "data=3", {"clients": 2}, "3 devices do not divide among --clients 2"),
        (SIZED["mlp"], "data=2", {"clients": 0}, "--clients is 0"),
    ],
)
def test_what_does_not_divide_is_refused(workload: str, mesh: str, options: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse(RunConfig("tf", "dtensor", workload, mesh=mesh, batch_size=48, options=options))


def test_a_killed_client_is_named(run_troubled: RunTroubled) -> None:
    with pytest.raises(WorkerFailed, match="worker-1 was killed by SIGKILL"):
        run_troubled("second_worker_is_killed", "tf:dtensor+clients=2", SHALLOW, devices=2, steps=2000)


@pytest.mark.slow
def test_update_in_the_function_of_the_gradients_would_be_another_step(troubled: Launcher, tmp_path) -> None:
    """Tensorflow 2.21, silently: why `DTensorProgram` has two functions. When this fails, one will do.

    One update only: the function that is made here has the bias corrections of the first step.
    """
    asked = RunConfig("tf", "dtensor", SIZED["mlp"], devices=2, batch_size=48, steps=2, dtype="float64", parity=True)
    asked = dataclasses.replace(asked, optimizer="adamw", out=str(tmp_path / "run"))
    result = troubled.run(parse(asked), launch_of(asked), environment={"TROUBLE": "dtensor_in_one_function"})
    assert result.status == "not the same step"
    assert result.parity.max_relative_loss > 1e-6
