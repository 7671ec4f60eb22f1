"""Layers whose `trainable` is False cost what they cost in torch: memory of their own, and nothing else."""

import pytest

from tests.cells import slow
from tests.conftest import RunCell
from tests.own.frozen import KERAS, asked
from tests.tf_impl.conftest import costs_what_was_predicted

pytestmark = pytest.mark.tf

NUM_PARAMS, NUM_FROZEN = 482, 272
FLOAT64 = 8


@pytest.mark.parametrize(
    "cell",
    [
        "mirrored",
        *slow("parameter_server", "single", "central_storage", "multi_worker_mirrored", "mirrored+compress=int8"),
    ],
)
def test_every_byte_is_predicted(run_cell: RunCell, cell: str) -> None:
    assert KERAS.tf is not None
    dtype = {"dtype": "float32"} if "compress" in cell else {}
    devices = {"devices": 1 if cell == "single" else 2}
    result = run_cell(f"tf:{cell}", "digits-mlp", **asked("KERAS", **devices, **dtype))
    assert cell == "single" or dtype or result.parity.passed, result.parity.reason
    costs_what_was_predicted(result)
    item = 4 if dtype else FLOAT64
    trained = NUM_PARAMS - NUM_FROZEN
    fullest = max(result.processes, key=lambda row: row.state_bytes)
    assert (fullest.params_bytes, fullest.optimizer_bytes) == (NUM_PARAMS * item, 2 * trained * item)


@pytest.mark.slow
@pytest.mark.parametrize("servers", [1, 2])
def test_servers_are_asked_less_of_what_is_not_changed(run_cell: RunCell, servers: int) -> None:
    cell = f"tf:parameter_server+parameter_servers={servers}"
    costs_what_was_predicted(run_cell(cell, "digits-mlp", **asked("MOSTLY_FROZEN", devices=2)))


def test_frozen_layers_of_two_frameworks_are_matched(run_cell: RunCell) -> None:
    result = run_cell("tf:single", "digits-mlp", **asked("BOTH"))
    assert result.parity.passed, result.parity.reason
    (row,) = result.processes
    assert row.state_bytes == (NUM_PARAMS + 3 * (NUM_PARAMS - NUM_FROZEN)) * FLOAT64
