"""The schedule is the schedule: who computes what in which order, against each schedule's own rule."""

import itertools
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from samestep.common.costs.saved_activations.peak import in_flight
from samestep.common.costs.stage_sends import passes_of
from samestep.common.request import RunConfig, launch_of
from samestep.common.run import parse
from samestep.common.runtime.parent.launcher import Launcher
from samestep.common.workload.pipeline_schedule import SCHEDULES
from tests.lent import LentLauncher
from tests.sharing import made_once

pytestmark = pytest.mark.torch

Order = list[tuple[str, int, int]]
"""(kind, stage, micro-batch) of one rank, in order."""
EIGHT_STAGES = "prose-gpt+layers=6+width=16+heads=2+context=8"


@pytest.fixture(scope="module")
def keeping(launcher: Launcher) -> Launcher:
    return LentLauncher(launcher, "tests.torch_impl.pipeline_worker")


@pytest.fixture(scope="module")
def orders(keeping: Launcher, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, int, int], list[Order]]:
    """What each rank did under a schedule, run once in a session."""

    def orders(schedule: str, ranks: int, microbatches: int) -> list[Order]:
        def run(out: Path) -> None:
            asked = RunConfig(
                strategy="pp",
                workload=EIGHT_STAGES,
                devices=ranks,
                options={"schedule": schedule, "microbatches": microbatches},
                steps=2,
                batch_size=64,
                parity=False,
                evaluate=False,
                timeout_seconds=30,
                out=str(out),
            )
            keeping.run(parse(asked), launch_of(asked))

        out = made_once(tmp_path_factory, f"orders-{schedule}-{ranks}-{microbatches}", run)
        return [kept(out, rank) for rank in range(ranks)]

    return orders


def kept(run: Path, rank: int) -> Order:
    events = json.loads((run / f"timeline-{rank}.json").read_text())
    assert events == sorted(events, key=lambda event: event["start"])
    return [(event["kind"], event["stage"], event["microbatch"]) for event in events]


def gpipe(rank: int, ranks: int, microbatches: int) -> Order:
    """Every forward, then every backward."""
    return [(kind, rank, i) for kind in "FB" for i in range(microbatches)]


def one_f_one_b(rank: int, ranks: int, microbatches: int) -> Order:
    """As many forwards as there are ranks from here to the end, then one backward, one forward."""
    ahead = min(microbatches, ranks - rank)
    forward = [("F", rank, i) for i in range(microbatches)]
    backward = [("B", rank, i) for i in range(microbatches)]
    return alternating(forward[:ahead], backward, forward[ahead:])


def alternating(first: Order, one: Order, other: Order) -> Order:
    pairs = itertools.chain.from_iterable(itertools.zip_longest(one, other))
    return first + [event for event in pairs if event is not None]


def looped_bfs(rank: int, ranks: int, microbatches: int) -> Order:
    """Breadth first: every forward of a stage before the next stage's, every backward the other way round."""
    stages = (rank, rank + ranks)
    forward = [("F", stage, i) for stage in stages for i in range(microbatches)]
    return forward + [("B", stage, i) for stage in reversed(stages) for i in reversed(range(microbatches))]


def interleaved(rank: int, ranks: int, microbatches: int, ahead_per_rank: int, kind: str) -> Order:
    """Megatron's: micro-batches in rounds of one per rank, each round through both stages before the next."""
    stages = (rank, rank + ranks)
    rounds = [range(first, first + ranks) for first in range(0, microbatches, ranks)]
    forward = [("F", stage, i) for each in rounds for stage in stages for i in each]
    backward = [(kind, stage, i) for each in rounds for stage in reversed(stages) for i in each]
    ahead = min(len(forward), ranks + ahead_per_rank * (ranks - 1 - rank))
    return alternating(forward[:ahead], forward[ahead:], backward)


def dualpipev_start(rank: int, ranks: int) -> Order:
    """Its first two phases: forwards of the way out only, then both ways in turn."""
    out, back = rank, 2 * ranks - 1 - rank
    first = [("F", out, i) for i in range(2 * (ranks - 1 - rank))]
    return [*first, ("F", out, len(first)), ("F", back, 0)]


SIZES = [pytest.param(2, 4, marks=pytest.mark.slow), (4, 8)]
sizes = pytest.mark.parametrize(("ranks", "microbatches"), SIZES)


@sizes
@pytest.mark.parametrize(
    ("schedule", "rule"),
    [
        ("gpipe", gpipe),
        ("1f1b", one_f_one_b),
        ("looped_bfs", looped_bfs),
        ("interleaved_1f1b", lambda rank, ranks, m: interleaved(rank, ranks, m, 2, "B")),
    ],
)
def test_every_rank_keeps_the_order(orders, schedule, rule, ranks, microbatches):
    for rank, order in enumerate(orders(schedule, ranks, microbatches)):
        assert order == rule(rank, ranks, microbatches), f"rank {rank}"


@sizes
def test_interleaved_zero_bubble_is_interleaved_with_the_weights_put_off(orders, ranks, microbatches):
    for rank, order in enumerate(orders("interleaved_zero_bubble", ranks, microbatches)):
        without = [event for event in order if event[0] != "W"]
        assert without == interleaved(rank, ranks, microbatches, 1, "I"), f"rank {rank}"


@sizes
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_orders_fit_together_and_everything_is_done_once(orders, schedule, ranks, microbatches):
    """Played event by event, no rank ever waits for what only comes after it."""
    queues = [list(order) for order in orders(schedule, ranks, microbatches)]
    last = ranks * SCHEDULES[schedule].stages_per_rank - 1
    done: set[tuple[str, int, int]] = set()

    def ready(kind: str, stage: int, i: int) -> bool:
        before = {
            "F": {("F", stage - 1, i)} if stage else set(),
            "B": {("F", stage, i)},
            "I": {("F", stage, i)},
            "W": {("I", stage, i)},
        }[kind]
        behind = kind in "BI" and stage < last
        return before <= done and (not behind or bool({("B", stage + 1, i), ("I", stage + 1, i)} & done))

    while any(queues):
        moved = [queue.pop(0) for queue in queues if queue and ready(*queue[0])]
        assert moved, f"stuck before {[queue[:1] for queue in queues]}"
        assert not done & set(moved)
        done |= set(moved)
    every = set(itertools.product(range(last + 1), range(microbatches)))
    assert {event[1:] for event in done if event[0] == "F"} == every
    assert {event[1:] for event in done if event[0] in "BI"} == every
    assert {event[1:] for event in done if event[0] == "W"} == {event[1:] for event in done if event[0] == "I"}


@sizes
@pytest.mark.parametrize("schedule", ["interleaved_zero_bubble", "zbv_zero_bubble", "dualpipev"])
def test_zero_bubble_puts_weights_off(orders, schedule, ranks, microbatches):
    put_off = [
        order.index(("W", *event[1:])) - order.index(event)
        for order in orders(schedule, ranks, microbatches)
        for event in order
        if event[0] == "I"
    ]
    assert max(put_off) > 1


@sizes
def test_zbv_holds_no_more_activations_than_1f1b(orders, ranks, microbatches):
    """At most two stages' worth for each rank: what 1F1B's first rank holds of stages twice as large."""
    for order in orders("zbv_zero_bubble", ranks, microbatches):
        held = itertools.accumulate({"F": 1, "W": -1, "B": -1}.get(event[0], 0) for event in order)
        assert max(held) <= 2 * ranks


@sizes
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_as_many_micro_batches_are_in_flight_as_costs_say(orders, schedule, ranks, microbatches):
    """No moment has more of any stage than one of the candidates for the peak, and every candidate is a moment.

    Nor has one ahead of a backward pass, for which a stage is computed again, more than a candidate of that stage.
    """
    holders = SCHEDULES[schedule].stage_ranks(ranks)
    for rank, order in enumerate(orders(schedule, ranks, microbatches)):
        own = [stage for stage, holder in enumerate(holders) if holder == rank]
        moments = {tuple(counts(order[:end], stage) for stage in own) for end in range(len(order) + 1)}
        candidates = in_flight(schedule, ranks, rank, microbatches)
        assert {each.counts for each in candidates} <= moments
        assert all(any(all(map(is_no_more, m, c.counts)) for c in candidates) for m in moments)
        ahead = {
            (tuple(counts(order[:end], stage) for stage in own), own.index(order[end][1]))
            for end in range(len(order))
            if order[end][0] == "B"
        }
        if not SCHEDULES[schedule].delays_weights:
            assert set(candidates) <= ahead
            assert all(any(b == c.stage and all(map(is_no_more, m, c.counts)) for c in candidates) for m, b in ahead)


@sizes
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_passes_come_in_the_order_that_costs_say(orders, schedule, ranks, microbatches):
    whole = dict.fromkeys(("backward", SCHEDULES[schedule].last_phase))
    phases = {"F": ["forward"], "I": ["backward"], "W": ["weights"], "B": list(whole)}
    for rank, order in enumerate(orders(schedule, ranks, microbatches)):
        taken = [(phase, stage) for kind, stage, _ in order for phase in phases[kind]]
        assert taken == passes_of(rank, schedule, ranks, microbatches)


def counts(order: Order, stage: int) -> tuple[int, int]:
    """How many micro-batches of a stage have not come back, and how many of those that have wait for their weights."""
    forward, whole, inputs, weights = (sum(event[:2] == (kind, stage) for event in order) for kind in "FBIW")
    return forward - whole - inputs, inputs - weights


def is_no_more(moment: tuple[int, int], candidate: tuple[int, int]) -> bool:
    """Whether less is kept: what has come back keeps no more than what has not."""
    return moment[0] <= candidate[0] and sum(moment) <= sum(candidate)


@sizes
def test_dualpipev_begins_both_ways(orders, ranks, microbatches):
    for rank, order in enumerate(orders("dualpipev", ranks, microbatches)):
        start = dualpipev_start(rank, ranks)
        assert order[: len(start)] == start, f"rank {rank}"
