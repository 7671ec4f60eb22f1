"""A run that moves between the sharded rows is still the oracle's run, with every model; see tests/parity/test_every_pair.py."""

from pathlib import Path

import pytest

from tests.cells import slow
from tests.conftest import RunCell

SMALLEST = {
    "cnn": "mnist-cnn+filters=2+hidden=8",
    "transformer": "prose-gpt+layers=1+width=16+context=32+heads=2",
    "ranker": "flights-ranker+embedding=2+hash_buckets=64+hidden=16",
}


@pytest.mark.torch
@pytest.mark.parametrize("model", ["cnn", *slow("ranker", "transformer")])
def test_between_the_sharded_rows_with_every_model(run_cell: RunCell, tmp_path: Path, model: str) -> None:
    """Kernels of convolutions, tables and norms, gathered and placed again."""
    shared = {
        "workload": SMALLEST[model],
        "optimizer": "adamw",
        "dtype": "float64",
        "keep_state": True,
    }
    run_cell("torch:fsdp", devices=3, steps=2, out=str(tmp_path / "0"), parity=False, **shared)
    hybrid = {"mesh": "data=2,shard=2"}
    for leg, (place, where) in enumerate([("zero1", {"devices": 3}), ("zero2", {"devices": 2}), ("fsdp", hybrid)]):
        start = str(tmp_path / str(leg))
        result = run_cell(
            f"torch:{place}", steps=2 * (leg + 2), start_from=start, out=str(tmp_path / str(leg + 1)), **where, **shared
        )
        assert result.parity.passed, result.parity.reason
        assert (result.first_step, result.parity.steps) == (2 * (leg + 1), 2)
