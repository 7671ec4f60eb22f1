"""A run that moves between frameworks, or takes its step in pieces, is still the oracle's run."""

import itertools
from pathlib import Path

import numpy as np
import pytest

from samestep.common.judging.parity import LOSS_BOUND, WEIGHT_BOUND
from samestep.common.runtime.records import RunResult
from samestep.common.runtime.state_file import read_state
from samestep.common.techniques import Techniques
from tests.cells import SIZED, slow
from tests.conftest import RunCell

FLOAT64_RUN = {"dtype": "float64", "batch_size": 48}
MOVED = {"mlp": SIZED["mlp"], "transformer": "prose-gpt+layers=1+width=32+context=16"}
STEPS = {"mlp": (50, 75, 100), "transformer": (10, 20, 30)}
"""Where a run goes elsewhere, and where it ends."""
DDP = {"cell": "torch:ddp", "devices": 2}
MIRRORED = {"cell": "tf:mirrored", "devices": 2}


@pytest.mark.torch
@pytest.mark.tf
@pytest.mark.parametrize("optimizer", ["adamw", *slow("sgd")])
@pytest.mark.parametrize("model", ["transformer", *slow("mlp")])
def test_ddp_then_mirrored_then_ddp_is_one_run_of_the_oracle(
    run_cell: RunCell, tmp_path: Path, model: str, optimizer: str
) -> None:
    shared = {"workload": MOVED[model], "optimizer": optimizer, "parity": False, "keep_state": True, **FLOAT64_RUN}
    steps = STEPS[model]
    wanted = run_cell("numpy:oracle", steps=steps[-1], out=str(tmp_path / "oracle"), **shared).losses

    legs: list[RunResult] = []
    previous: Path | None = None
    for number, (where, last) in enumerate(zip((DDP, MIRRORED, DDP), steps, strict=True)):
        out = tmp_path / f"leg-{number}"
        start = None if previous is None else str(previous)
        legs.append(run_cell(**where, steps=last, out=str(out), start_from=start, **shared))
        previous = out
    assert [(leg.first_step, leg.steps) for leg in legs] == list(itertools.pairwise((0, *steps)))

    losses = [loss for leg in legs for loss in leg.losses]
    np.testing.assert_allclose(losses, wanted, rtol=LOSS_BOUND["float64"], atol=0)
    reached, right = read_state(tmp_path / "leg-2"), read_state(tmp_path / "oracle")
    assert reached.step == right.step == steps[-1]
    assert list(reached.params) == list(right.params)
    assert (
        set(reached.slots)
        == set(right.slots)
        == {"sgd": {"momentum"}, "adamw": {"first_moment", "second_moment"}}[optimizer]
    )
    for name, value in right.params.items():
        np.testing.assert_allclose(reached.params[name], value, rtol=0, atol=WEIGHT_BOUND["float64"])
        for slot, values in right.slots.items():
            np.testing.assert_allclose(reached.slots[slot][name], values[name], rtol=0, atol=WEIGHT_BOUND["float64"])


@pytest.mark.torch
@pytest.mark.tf
def test_a_continued_run_is_judged_against_the_oracle_from_where_it_starts(run_cell: RunCell, tmp_path: Path) -> None:
    shared = {"workload": SIZED["mlp"], "optimizer": "adamw", **FLOAT64_RUN}
    run_cell("torch:single", steps=10, out=str(tmp_path / "first"), parity=False, keep_state=True, **shared)
    result = run_cell(**MIRRORED, steps=20, start_from=str(tmp_path / "first"), **shared)
    assert result.parity.passed, result.parity.reason
    assert (result.first_step, result.parity.steps) == (10, 10)


@pytest.mark.slow
@pytest.mark.parametrize(
    "techniques",
    [
        pytest.param(Techniques(accumulation_steps=2), id="two micro-batches"),
        pytest.param(Techniques(clip_norm=0.5), id="clipped"),
        pytest.param(Techniques(accumulation_steps=3, clip_norm=0.5), id="three micro-batches, clipped"),
    ],
)
@pytest.mark.parametrize(
    "where",
    [pytest.param(DDP, marks=pytest.mark.torch, id="ddp"), pytest.param(MIRRORED, marks=pytest.mark.tf, id="mirrored")],
)
def test_a_step_in_pieces_is_the_same_step(run_cell: RunCell, where: dict[str, object], techniques: Techniques) -> None:
    """`test_covered.py` has two micro-batches in each way of adding up."""
    result = run_cell(**where, workload=SIZED["mlp"], optimizer="adamw", techniques=techniques, **FLOAT64_RUN)
    assert result.parity.passed, result.parity.reason
    assert result.parity.steps == 6


def test_the_clipping_above_does_clip(run_cell: RunCell) -> None:
    shared = {"workload": SIZED["mlp"], "optimizer": "sgd", "parity": False, **FLOAT64_RUN}
    plain = run_cell("numpy:oracle", **shared)
    clipped = run_cell("numpy:oracle", techniques=Techniques(clip_norm=0.5), **shared)
    assert plain.losses[0] == clipped.losses[0]
    assert abs(plain.losses[5] - clipped.losses[5]) > 0.01


@pytest.mark.torch
def test_the_exchange_is_on_the_last_micro_batch_only(run_cell: RunCell) -> None:
    plain, halves = (
        run_cell(
            **DDP, workload=SIZED["mlp"], techniques=Techniques(accumulation_steps=count), parity=False, **FLOAT64_RUN
        )
        for count in (1, 2)
    )
    assert plain.exchanges == halves.exchanges
    assert plain.exchanges
