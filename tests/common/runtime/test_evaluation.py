"""What is evaluated after training: no more than was trained on, nothing random, and each rank its share."""

import pytest

from samestep.common.request import RunConfig
from samestep.common.run import parse
from samestep.common.runtime.worker.evaluation import num_evaluated
from tests.conftest import RunCell


@pytest.mark.parametrize(
    ("workload", "asked", "count"),
    [
        ("digits-mlp", None, 30),
        ("digits-mlp", True, 360),
        ("digits-mlp", False, 0),
        ("synthetic-mlp", None, 0),
        ("synthetic-mlp", True, 360),
    ],
)
def test_no_more_is_evaluated_than_was_trained_on(workload: str, asked: bool | None, count: int) -> None:
    run = parse(RunConfig(workload=workload, batch_size=10, steps=3))
    assert num_evaluated(run, asked, 360) == count
    assert num_evaluated(run, asked, 20) == min(20, count)


@pytest.mark.parametrize(
    "cell",
    [
        pytest.param("torch:ddp", marks=pytest.mark.torch),
        pytest.param("torch:fsdp", marks=pytest.mark.torch),
        pytest.param("tf:mirrored", marks=pytest.mark.tf),
        pytest.param("tf:multi_worker_mirrored", marks=pytest.mark.tf),
    ],
)
def test_shares_of_all_ranks_make_the_metric_of_the_whole(run_cell: RunCell, cell: str) -> None:
    asked = {"dtype": "float64", "devices": 2, "batch_size": 48, "steps": 3, "all_held_out": True, "parity": False}
    shared = run_cell(cell, "digits-mlp+width=32", **asked)
    alone = run_cell("numpy:oracle", "digits-mlp+width=32", **{**asked, "devices": None})
    assert shared.metric_value == alone.metric_value is not None
