"""The ledger of examples: what processes gather is what the order of the run has, or it says what is not."""

import dataclasses
import itertools
from collections.abc import Callable

import numpy as np
import pytest

from samestep.common.batch import BatchPart, Chunk, batches
from samestep.common.gathering import GatheredSteps, Gathering
from samestep.common.judging.examples_ledger import find_gap, kept

EXAMPLES, SIZE, SEED = 50, 8, 3
Entries = list[tuple[int, str, GatheredSteps]]


def gathered(first: int, end: int, parts: list[BatchPart], seed: int = SEED) -> list[GatheredSteps]:
    """What a process notes that gathers these parts of each batch, in two halves and the first of them twice."""
    gathering, data = Gathering(), np.zeros((EXAMPLES, 4))
    for batch in itertools.islice(batches(data, data, SIZE, seed, first), end - first):
        noted = dataclasses.replace(batch, gathering=gathering)
        for part in parts:
            for half in (0, 1, 0):
                noted.rows(part.split(half, 2))
    return gathering.take()


def run(world: int, spans: list[tuple[int, int]], positions: int = 1) -> Entries:
    """The entries of attempts that took these steps; every rank has its shard, and there are as many more of each position."""
    return [
        (attempt, f"rank-{rank * positions + position}", steps)
        for attempt, (first, end) in enumerate(spans, 1)
        for rank in range(world)
        for position in range(positions)
        for steps in gathered(first, end, [BatchPart(Chunk(rank, world), Chunk(position, positions))])
    ]


def gap(entries: Entries, end: int = 12) -> str:
    return find_gap(kept(entries), EXAMPLES, SIZE, SEED, end)


@pytest.mark.parametrize("positions", [1, 2])
@pytest.mark.parametrize("world", [1, 2, 4])
def test_what_ranks_gather_adds_up(world: int, positions: int) -> None:
    assert gap(run(world, [(0, 12)], positions)) == ""
    assert (
        gap(run(world, [(0, 12)], positions) + run(world, [(0, 12)], positions)) == ""
    )  # replicas of a tensor's shards


def test_a_later_attempt_takes_the_place_of_an_earlier_one() -> None:
    entries = run(4, [(0, 5)]) + [(2, role, each) for _, role, each in run(2, [(5, 12)])]
    assert gap(entries) == ""
    assert [(each.first, each.end, each.num_processes) for each in kept(entries)] == [(0, 5, 4), (5, 12, 2)]
    again = entries + [(3, role, each) for _, role, each in run(4, [(5, 12)])]
    assert gap(again) == "" and [each.number for each in kept(again)] == [1, 3]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda entries: entries[1:], "steps 0 to 11: the example in place 0 was gathered 0 times, and others 1 times"),
        (lambda entries: [*entries, entries[2]], "place 4 was gathered 2 times, and others 1 times"),
        (lambda entries: [entry for entry in entries if entry[0] != 2], "step 12 was gathered by no process"),
        (
            lambda entries: other_seed(entries),
            "steps 0 to 11: rank-0 gathered different examples from those of these steps",
        ),
    ],
)
def test_what_does_not_add_up_is_told(change: Callable[[Entries], Entries], told: str) -> None:
    entries = run(4, [(0, 12), (12, 20)])
    assert gap(entries, 20) == ""
    assert told in gap(change(entries), 20)


def other_seed(entries: Entries) -> Entries:
    """The first rank shuffles by another seed."""
    (wrong,) = gathered(0, 12, [BatchPart(Chunk(0, 4))], seed=SEED + 1)
    return [(1, "rank-0", wrong), *entries[1:]]
