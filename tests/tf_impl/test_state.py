"""One training run handed from strategy to strategy: the curve goes on as if nothing had happened."""

import pytest

from tests.cells import SIZED
from tests.conftest import RunCell

pytestmark = pytest.mark.tf

CHAIN = (
    ("tf:mirrored", {"devices": 2}),
    ("tf:dtensor", {"mesh": "data=2,tensor=2"}),
    ("tf:parameter_server+parameter_servers=2", {"devices": 2}),
    ("tf:multi_worker_mirrored", {"devices": 2}),
    ("tf:central_storage", {"devices": 2}),
    ("tf:dtensor+clients=2", {"mesh": "tensor=2"}),
    ("tf:mirrored", {"devices": 2}),
)


def test_state_goes_through_every_strategy(run_cell: RunCell) -> None:
    same = {"dtype": "float64", "optimizer": "adamw", "batch_size": 48}
    losses, previous = [], None
    for number, (cell, devices) in enumerate(CHAIN, start=1):
        result = run_cell(cell, SIZED["mlp"], steps=3 * number, start_from=previous, **devices, **same)
        losses += result.losses
        previous = result.config.out
    whole = run_cell("tf:single", SIZED["mlp"], steps=3 * len(CHAIN), **same)
    assert losses == pytest.approx(whole.losses, rel=1e-12, abs=0)
