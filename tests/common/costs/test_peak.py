"""What is in flight at a rank's peak is what its passes leave there, whatever a search leaves out of them."""

import itertools
from collections.abc import Iterator

import pytest

from samestep.common.costs.saved_activations.peak import Moment, in_flight
from samestep.common.workload.passes import PASSES
from samestep.common.workload.pipeline_schedule import SCHEDULES

MOST_RANKS, MOST_MICROBATCHES = 6, 24


def moments(schedule: str, ranks: int, rank: int, microbatches: int) -> Iterator[Moment]:
    """Every moment ahead of a backward pass, counted anew from all passes ahead of it."""
    passes, rule = PASSES[schedule](rank, ranks, microbatches), SCHEDULES[schedule]
    for end, (phase, back) in enumerate(passes):
        if phase != "backward":
            continue
        counts = []
        for stage in range(rule.stages_per_rank):
            forward, inputs, weights = (
                passes[:end].count((each, stage)) for each in ("forward", "backward", "weights")
            )
            counts.append((forward - inputs, inputs - weights if rule.delays_weights else 0))
        yield Moment(tuple(counts), 0 if rule.delays_weights else back)


def sizes(schedule: str) -> Iterator[tuple[int, int]]:
    """The numbers of ranks and of micro-batches that a schedule takes."""
    rule = SCHEDULES[schedule]
    for ranks, count in itertools.product(range(1, MOST_RANKS + 1), range(1, MOST_MICROBATCHES + 1)):
        is_full = not rule.fills_stages or count >= ranks * rule.stages_per_rank
        if is_full and not (rule.in_rounds and count % max(1, count // ranks)):
            yield ranks, count


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_candidates_are_the_moments_that_no_other_exceeds(schedule: str) -> None:
    for ranks, count in sizes(schedule):
        for rank in range(ranks):
            every = set(moments(schedule, ranks, rank, count))
            highest = {one for one in every if not any(one.is_within(other) for other in every - {one})}
            assert set(in_flight(schedule, ranks, rank, count)) == highest, (ranks, rank, count)
