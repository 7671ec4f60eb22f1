"""A run that moves from any of these strategies to any other is still the oracle's run."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from common.evidence.parity import LOSS_BOUND, WEIGHT_BOUND
from common.runtime.records import read_state
from tests.cells import SIZED
from tests.conftest import RunCell

PLACES = {"torch:ddp": 2, "torch:zero1": 2, "torch:fsdp": 3, "tf:mirrored": 2, "numpy:oracle": 1}
"""Each with its number of devices; three make uneven shards."""
STEPS = 2
SMALLEST = {
    "cnn": "mnist-cnn+filters=2+hidden=8",
    "transformer": "prose-gpt+layers=1+width=16+context=32+heads=2",
    "ranker": "flights-ranker+embedding=2+hash_buckets=64+hidden=16",
}


def tour(places: list[str]) -> Iterator[str]:
    """A way that takes every ordered pair of places once (Hierholzer)."""
    left = {place: [other for other in places if other != place] for place in places}
    path, way = [places[0]], []
    while path:
        if left[path[-1]]:
            path.append(left[path[-1]].pop())
        else:
            way.append(path.pop())
    yield from reversed(way)


def test_the_tour_takes_every_pair_once() -> None:
    way = list(tour(list(PLACES)))
    pairs = list(itertools.pairwise(way))
    assert len(pairs) == len(set(pairs)) == len(PLACES) * (len(PLACES) - 1)


@pytest.mark.torch
@pytest.mark.tf
@pytest.mark.parametrize("optimizer", ["adamw", pytest.param("sgd", marks=pytest.mark.slow)])
def test_between_every_ordered_pair(run_cell: RunCell, tmp_path: Path, optimizer: str) -> None:
    shared = {"workload": SIZED["mlp"], "optimizer": optimizer, "dtype": "float64", "parity": False}
    way = list(tour(list(PLACES)))
    wanted = run_cell("numpy:oracle", steps=STEPS * len(way), out=str(tmp_path / "oracle"), **shared).losses

    losses: list[float] = []
    for leg, place in enumerate(way):
        result = run_cell(
            place,
            devices=PLACES[place],
            steps=STEPS * (leg + 1),
            out=str(tmp_path / str(leg)),
            start_from=str(tmp_path / str(leg - 1)) if leg else None,
            **shared,
        )
        assert result.first_step == STEPS * leg
        losses += result.losses
        np.testing.assert_allclose(
            losses, wanted[: len(losses)], rtol=LOSS_BOUND["float64"], atol=0, err_msg=f"{way[leg - 1]} to {place}"
        )
    reached, right = read_state(tmp_path / str(len(way) - 1)), read_state(tmp_path / "oracle")
    assert reached.step == right.step
    for name, value in right.params.items():
        np.testing.assert_allclose(reached.params[name], value, rtol=0, atol=WEIGHT_BOUND["float64"])
        for slot, values in right.slots.items():
            np.testing.assert_allclose(reached.slots[slot][name], values[name], rtol=0, atol=WEIGHT_BOUND["float64"])


@pytest.mark.torch
@pytest.mark.parametrize("model", ["cnn", "ranker", pytest.param("transformer", marks=pytest.mark.slow)])
def test_between_the_sharded_rows_with_every_model(run_cell: RunCell, tmp_path: Path, model: str) -> None:
    """Kernels of convolutions, tables and norms, gathered and placed again."""
    shared = {"workload": SMALLEST[model], "optimizer": "adamw", "dtype": "float64", "batch_size": 960}
    run_cell("torch:fsdp", devices=3, steps=2, out=str(tmp_path / "0"), parity=False, **shared)
    hybrid = {"mesh": "data=2,shard=2"}
    for leg, (place, where) in enumerate([("zero1", {"devices": 3}), ("zero2", {"devices": 2}), ("fsdp", hybrid)]):
        start = str(tmp_path / str(leg))
        result = run_cell(
            f"torch:{place}", steps=2 * (leg + 2), start_from=start, out=str(tmp_path / str(leg + 1)), **where, **shared
        )
        assert result.parity.passed, result.parity.reason
        assert (result.first_step, result.parity.steps) == (2 * (leg + 1), 2)
