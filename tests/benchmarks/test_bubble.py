"""The benchmark of pipeline bubbles, docs/pytorch.md."""

import pytest

from benchmarks.predicting.bubble import measure, measured_bubble, predicted_bubble

pytestmark = pytest.mark.torch


def test_stages_that_sleep_are_timed_on_every_rank() -> None:
    ranks = measure(2, "gpipe", 2, 0.01)
    for rank in ranks:
        for events, _ in rank.steps:
            assert sorted(event.kind for event in events) == ["B", "B", "F", "F"]
    assert predicted_bubble(ranks, 0.01, 0.0) == pytest.approx(1 / 3)
    assert 0 < measured_bubble(ranks) < 1
