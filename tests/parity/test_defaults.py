"""The default workloads, as they are: each learns what it promises, and takes the oracle's step while it does."""

import pytest

from samestep.common.judging.metrics import METRICS
from samestep.common.workload.table import workload_named
from tests.conftest import RunCell

BARS = {"digits-mlp": 0.95, "mnist-cnn": 0.95, "prose-gpt": 4.0, "flights-ranker": 0.65}
"""Held out. Prose: bits per byte, of which a model of single bytes needs 4.70. Flights: every fifth date held out."""


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.parametrize("workload", BARS)
def test_the_defaults_reach_their_bar(run_cell: RunCell, workload: str) -> None:
    result = run_cell("torch:single", workload, batch_size=None, steps=None, all_held_out=True)
    assert result.parity.passed, result.parity.reason
    assert result.steps == workload_named(workload).steps
    assert result.metric_value is not None
    better = METRICS[result.metric_name].direction
    assert result.metric_value >= BARS[workload] if better == "higher" else result.metric_value <= BARS[workload]
