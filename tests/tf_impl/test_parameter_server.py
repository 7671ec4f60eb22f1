"""parameter_server: where the variables are, what travels, and that it is what was predicted."""

import dataclasses
import re
from pathlib import Path

import pytest

from samestep.common.catalog import framework_info
from samestep.common.errors import ConfigError
from samestep.common.request import RunConfig, launch_of
from samestep.common.run import parse
from samestep.common.runtime.parent.launcher import Launcher
from samestep.common.runtime.records import RunResult
from samestep.common.techniques import Techniques
from tests.cells import SHALLOW, SIZED, slow
from tests.conftest import RunCell
from tests.tf_impl.conftest import memory

pytestmark = pytest.mark.tf
SERIAL, ASYNC = "tf:parameter_server", "tf:parameter_server+consistency=async"
CELL = "tf:parameter_server+parameter_servers=2"


def sent_bytes(result: RunResult) -> float:
    """Of all processes, none of which may have been overlooked."""
    assert all(row.sent_bytes_per_step > 0 for row in result.processes)
    return sum(row.sent_bytes_per_step for row in result.processes)


def costs_what_was_predicted(result: RunResult) -> None:
    """Footprints and exchanges exactly; the wire within 5 %."""
    assert memory(result.processes) == memory(result.predicted.devices())
    assert tuple(result.exchanges) == result.predicted.exchanges
    predicted = result.predicted.sent_bytes_per_step
    assert abs(sent_bytes(result) - predicted) <= 0.05 * predicted


@pytest.mark.parametrize("model", ["ranker", *slow("transformer")])
def test_tables_are_cut_by_rows_and_cost_what_was_predicted(run_cell: RunCell, model: str) -> None:
    sized = {"dtype": "float64", "optimizer": "adamw", "steps": 5}
    result = run_cell(CELL, SIZED[model], devices=2, **sized)
    assert result.parity.passed, result.parity.reason
    costs_what_was_predicted(result)
    servers = [row for row in result.processes if "/job:ps/" in row.device]
    assert len(servers) == 2
    assert all(row.optimizer_bytes == 2 * row.params_bytes > 0 for row in servers)


@pytest.mark.parametrize("optimizer", ["adamw", *slow("sgd")])
@pytest.mark.parametrize("cell", [SERIAL, *slow(ASYNC)])
def test_an_update_moves_the_parameters_once_each_way(run_cell: RunCell, cell: str, optimizer: str) -> None:
    sized = {"optimizer": optimizer, "batch_size": 32, "steps": 21}
    result = run_cell(cell, "digits-mlp+width=512", devices=2, parity=False, **sized)
    costs_what_was_predicted(result)
    parameters = sum(row.params_bytes for row in result.processes)
    assert parameters > 2e6
    updates = 1 if cell == SERIAL else 2
    assert 2 * parameters < sent_bytes(result) / updates <= 2.1 * parameters
    roles = [row.role.rpartition("-")[0] for row in result.processes]
    assert roles == ["chief", "worker", "worker", "ps"]
    assert result.processes[-1].sent_bytes_per_step == pytest.approx(updates * parameters, rel=0.05)


@pytest.mark.parametrize("cell", slow(CELL, f"{CELL}+consistency=async", SERIAL))
def test_gradients_of_a_large_table_travel_as_rows(run_cell: RunCell, cell: str) -> None:
    workload = "flights-ranker+hash_buckets=131072"
    result = run_cell(cell, workload, devices=2, steps=21, batch_size=192, parity=False)
    costs_what_was_predicted(result)
    table_bytes = 131072 * 8 * 4
    assert sum(row.params_bytes for row in result.processes) > table_bytes
    assert sent_bytes(result) < 0.1 * table_bytes


def test_micro_batches_of_rows_add_up(run_cell: RunCell) -> None:
    techniques = Techniques(accumulation_steps=2, clip_norm=0.5)
    result = run_cell(CELL, SIZED["ranker"], devices=2, dtype="float64", steps=5, batch_size=480, techniques=techniques)
    assert result.parity.passed, result.parity.reason


def test_no_server_is_refused() -> None:
    with pytest.raises(ConfigError, match="--parameter-servers is 0"):
        parse(RunConfig("tf", "parameter_server", SIZED["mlp"], devices=2, options={"parameter_servers": 0}))


def test_an_unknown_consistency_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"unknown consistency 'asink'\. Did you mean 'async'"):
        parse(RunConfig("tf", "parameter_server", SIZED["mlp"], devices=2, options={"consistency": "asink"}))


def test_the_chief_prepares_for_each_workers_answers_in_its_own_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two threads that do so at once crash TensorFlow 2.21 now and then."""
    verbose = {"TF_CPP_VMODULE": "cluster_function_library_runtime=1", "TF_CPP_MIN_LOG_LEVEL": "0"}
    for name, value in verbose.items():
        monkeypatch.setitem(framework_info("tf").environment, name, value)
    out = str(tmp_path / "run")
    asked = RunConfig("tf", "parameter_server", SHALLOW, devices=2, batch_size=48, steps=2, parity=False, out=out)
    asked = dataclasses.replace(asked, options={"consistency": "async"})
    with Launcher() as launcher:
        launcher.run(parse(asked), launch_of(asked))
        (server,) = launcher._servers.values()
        main_thread = server._processes.pid("server")  # the log keeps the number that a main thread had before the fork
    told = re.findall(
        r" (\d+) \S+ CFLR::Instantiate: __wrapped__Identity\S* on /job:worker\S*/task:(\d)",
        (tmp_path / "run" / "chief-0.log").read_text(),
    )
    assert told == [(str(main_thread), task) for task in "0011"]  # of each dtype: losses are float64, logits float32
