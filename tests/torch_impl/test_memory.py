"""What is measured in every step takes no more memory in a long run; `benchmarks/cost/memory.py` shows it of whole runs."""

import pytest
import torch
from torch import nn

from samestep.torch_impl.observing.recorder import SendRecorder
from samestep.torch_impl.pipeline.stage_events import Timeline
from samestep.torch_impl.step import KEPT_STEPS
from samestep.torch_impl.strategies.c10d import FlatExchange

pytestmark = pytest.mark.torch


def test_the_times_of_a_long_run_are_not_all_kept() -> None:
    model, timeline = nn.Linear(1, 1), Timeline(SendRecorder("data"))
    model.weight.grad = torch.ones(1, 1)
    exchange = FlatExchange(model.parameters(), torch.device("cpu"), lambda flat: None, may_skip=False)
    for _ in range(KEPT_STEPS + 50):
        with timeline.step(), exchange(last=True):
            pass
    assert [len(timeline._steps), len(exchange._seconds)] == [KEPT_STEPS, KEPT_STEPS]
    assert timeline.measures()["idle_seconds"] > 0
    assert exchange.measures()["communication_seconds"] > 0
