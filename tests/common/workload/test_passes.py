"""The order of passes under each schedule, without running any."""

import itertools

import pytest

from samestep.common.workload.passes import PASSES
from samestep.common.workload.pipeline_schedule import SCHEDULES


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize(("ranks", "microbatches"), [(1, 2), (2, 4), (4, 8), (4, 12), (8, 16)])
def test_every_micro_batch_passes_every_stage_forward_and_then_backward(
    name: str, ranks: int, microbatches: int
) -> None:
    stages = range(SCHEDULES[name].stages_per_rank)
    for rank in range(ranks):
        passes = PASSES[name](rank, ranks, microbatches)
        wanted = set(itertools.product(("forward", "backward", SCHEDULES[name].last_phase), stages))
        assert {each: passes.count(each) for each in passes} == dict.fromkeys(wanted, microbatches)
        for stage, phases in itertools.product(stages, (("forward", "backward"), ("backward", "weights"))):
            signs = dict(zip(phases, (1, -1), strict=True))
            ahead = itertools.accumulate(signs.get(p, 0) for p, s in passes if s == stage)
            assert min(ahead) >= 0


def test_one_forward_one_backward_keeps_few_micro_batches() -> None:
    assert PASSES["1f1b"](3, 4, 8)[:4] == [("forward", 0), ("backward", 0)] * 2
    assert PASSES["1f1b"](0, 4, 8)[:6] == [("forward", 0)] * 4 + [("backward", 0), ("forward", 0)]
