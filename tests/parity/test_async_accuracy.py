"""An asynchronous parameter server promises no step of its own, but the metric of `single` at equal examples."""

import statistics

import pytest

from tests.conftest import RunCell

SEEDS = range(5)
POINTS = 0.02
SETTING = {"batch_size": 96, "steps": 250, "dtype": "float32", "parity": False, "all_held_out": True}


def median_accuracy(run_cell: RunCell, cell: str, devices: int) -> float:
    found = []
    for seed in SEEDS:
        result = run_cell(cell, "digits-mlp+width=32+layers=2", devices=devices, seed=seed, **SETTING)
        assert result.metric_name == "accuracy"
        assert result.metric_value is not None
        found.append(result.metric_value)
    print(f"{cell} on {devices}: {', '.join(f'{value:.4f}' for value in found)}; median {statistics.median(found):.4f}")
    return statistics.median(found)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("framework", "strategy"),
    [
        pytest.param("torch", "rpc_parameter_server", marks=pytest.mark.torch),
        pytest.param("tf", "parameter_server", marks=pytest.mark.tf),
    ],
)
def test_the_median_of_five_seeds_is_within_two_points_of_single(
    run_cell: RunCell, framework: str, strategy: str
) -> None:
    single = median_accuracy(run_cell, f"{framework}:single", devices=1)
    assert single > 0.9, "it has learned, so that the comparison says something"
    served = median_accuracy(run_cell, f"{framework}:{strategy}+consistency=async", devices=2)
    assert abs(served - single) <= POINTS
