"""parameter_server: where the variables are, what travels, and what becomes of a run whose server dies."""

import time

import pytest

from common.config import RunConfig, Techniques
from common.errors import ConfigError, WorkerFailed
from common.runtime.check import check
from tests.cells import SIZED
from tests.conftest import RunCell
from tests.tf_impl.conftest import RunTroubled, memory

pytestmark = pytest.mark.tf
CELL = "tf:parameter_server+parameter_servers=2"


@pytest.mark.parametrize("model", ["transformer", "ranker"])
def test_tables_are_cut_by_rows_and_cost_what_the_law_says(run_cell: RunCell, model: str) -> None:
    sized = {"batch_size": 480 if model == "ranker" else 48, "dtype": "float64", "optimizer": "adamw", "steps": 5}
    result = run_cell(CELL, SIZED[model], devices=2, **sized)
    assert result.parity.passed, result.parity.reason
    assert memory(result.processes) == memory(result.predicted.footprints)
    assert tuple(result.exchanges) == result.predicted.exchanges
    servers = [row for row in result.processes if "/job:ps/" in row.device]
    assert len(servers) == 2
    assert all(row.optimizer_bytes == 2 * row.params_bytes > 0 for row in servers)


def test_gradients_of_a_large_table_travel_as_rows(run_cell: RunCell) -> None:
    result = run_cell(
        CELL, "flights-ranker+hash_buckets=131072+embedding=4", devices=2, steps=3, batch_size=480, parity=False
    )
    (push,) = (exchange for exchange in result.exchanges if exchange.name == "push")
    assert push.bytes_per_step < 0.05 * sum(row.params_bytes for row in result.processes)


def test_micro_batches_of_rows_add_up(run_cell: RunCell) -> None:
    techniques = Techniques(micro_batches=2, clip_norm=0.5)
    result = run_cell(CELL, SIZED["ranker"], devices=2, dtype="float64", steps=5, batch_size=480, techniques=techniques)
    assert result.parity.passed, result.parity.reason


@pytest.mark.parametrize("job", ["ps", "worker"])
def test_a_dead_server_is_named_within_ten_seconds(run_troubled: RunTroubled, job: str) -> None:
    start = time.monotonic()
    with pytest.raises(WorkerFailed, match=f"{job}-0 was killed by SIGKILL"):
        run_troubled(f"{job}_dies", CELL, SIZED["mlp"], devices=2, steps=5000)
    assert time.monotonic() - start < 20  # two of them are the start


def test_no_server_is_refused() -> None:
    with pytest.raises(ConfigError, match="--parameter-servers is 0"):
        check(RunConfig("tf", "parameter_server", SIZED["mlp"], devices=2, options={"parameter_servers": 0}))
