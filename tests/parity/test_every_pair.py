"""A run that moves from any strategy to any other, across frameworks too, is still the oracle's run."""

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from samestep.common.judging.parity import LOSS_BOUND, WEIGHT_BOUND
from samestep.common.runtime.state_file import read_state
from tests.conftest import RunCell

Pairs = Sequence[tuple[str, str]]
STEPS = 2
WORKLOAD = "digits-mlp+width=32+layers=2"
"""A kernel and a bias in each of two stages; further layers would travel in the same way."""
TWO = {"devices": 2}
PLACES = {
    "numpy:oracle": {"devices": 1},
    "torch:ddp": TWO,
    "torch:zero1": TWO,
    "torch:fsdp": {"devices": 3},  # uneven shards
    "torch:tp": TWO,
    "torch:pp": TWO,
    "torch:hybrid": {"mesh": "pipe=2,shard=2"},
    "torch:rpc_parameter_server": TWO,
    "tf:mirrored": TWO,
    "tf:multi_worker_mirrored": TWO,
    "tf:central_storage": TWO,
    "tf:parameter_server+parameter_servers=2": TWO,
    "tf:dtensor": {"mesh": "data=2,tensor=2"},
    "tf:dtensor+clients=2": {"mesh": "tensor=2"},
}
DATA_PARALLEL = ("torch:ddp", "torch:zero1", "torch:fsdp", "tf:mirrored", "numpy:oracle")
MODEL_PARALLEL = ("torch:ddp", "torch:fsdp", "torch:tp", "torch:pp", "torch:hybrid", "torch:rpc_parameter_server")
TENSORFLOW = tuple(name for name in PLACES if name.startswith("tf:"))
TO_AND_FROM = ("torch:fsdp",)
"""The other frameworks' rows go through the same file; every one of them is in a family of its own."""
EVERYWHERE = ("torch:ddp", "torch:fsdp", "torch:tp")
FAMILIES = {
    "data parallel": list(itertools.permutations(DATA_PARALLEL, 2)),
    "model parallel": list(itertools.permutations(MODEL_PARALLEL, 2)),
    "TensorFlow": list(itertools.permutations(TENSORFLOW, 2)),
    "across": [*itertools.product(TENSORFLOW, TO_AND_FROM), *itertools.product(TO_AND_FROM, TENSORFLOW)],
    "in turn": [
        *itertools.pairwise(("torch:fsdp", "tf:mirrored", "torch:pp", "tf:dtensor", "torch:ddp", "torch:fsdp"))
    ],
    "everywhere across": [*itertools.product(TENSORFLOW, EVERYWHERE), *itertools.product(EVERYWHERE, TENSORFLOW)],
}
SLOW = ("across", "everywhere across", "TensorFlow", "data parallel", "model parallel")


def tour(pairs: Pairs) -> Iterator[str]:
    """A way that takes every ordered pair once (Hierholzer); every place is left as often as it is reached."""
    left: dict[str, list[str]] = {}
    for start, end in pairs:
        left.setdefault(start, []).append(end)
    path, way = [pairs[0][0]], []
    while path:
        if left[path[-1]]:
            path.append(left[path[-1]].pop())
        else:
            way.append(path.pop())
    yield from reversed(way)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_tour_takes_every_pair_once(family: str) -> None:
    assert sorted(itertools.pairwise(tour(FAMILIES[family]))) == sorted(FAMILIES[family])


@pytest.mark.torch
@pytest.mark.tf
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("family", "optimizer"),
    [
        *(pytest.param(family, "adamw", marks=[pytest.mark.slow] if family in SLOW else []) for family in FAMILIES),
        *(pytest.param(family, "sgd", marks=pytest.mark.slow) for family in FAMILIES),
    ],
)
def test_between_every_ordered_pair(run_cell: RunCell, tmp_path: Path, family: str, optimizer: str) -> None:
    shared = {"workload": WORKLOAD, "optimizer": optimizer, "dtype": "float64", "parity": False, "batch_size": 48}
    shared |= {"keep_state": True}
    way = list(tour(FAMILIES[family]))
    wanted = run_cell("numpy:oracle", steps=STEPS * len(way), out=str(tmp_path / "oracle"), **shared).losses

    losses: list[float] = []
    for leg, place in enumerate(way):
        result = run_cell(
            place,
            steps=STEPS * (leg + 1),
            out=str(tmp_path / str(leg)),
            start_from=str(tmp_path / str(leg - 1)) if leg else None,
            **PLACES[place],
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
