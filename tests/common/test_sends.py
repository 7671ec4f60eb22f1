"""Sends: how many records they take, and that nothing is lost in them."""

import dataclasses

import pytest

from samestep.common.ledger import MOST_SENDS, Exchange, Send, exchanges_of, in_order
from samestep.common.request import RunConfig
from samestep.common.run import parse
from samestep.common.strategy import StrategyInfo
from tests.cells import SIZED, every_row, sized, takes
from tests.ledgers import without_bytes

GATHER = Send("forward", "all_gather", "shard", 4, 100)
SUM = Send("backward", "all_reduce", "data", 2, 8)


def test_equal_sends_that_follow_each_other_are_one_record() -> None:
    told = in_order([GATHER, GATHER, SUM, GATHER])
    assert told == (dataclasses.replace(GATHER, bytes=200, count=2), SUM, GATHER)
    assert in_order([*told, GATHER])[-1] == dataclasses.replace(GATHER, bytes=200, count=2)
    assert in_order(told) == told


@pytest.mark.parametrize(
    "change", [{"phase": "backward"}, {"bytes": 101}, {"to": "1"}, {"group": "data"}, {"ranks": 2}]
)
def test_what_differs_in_anything_is_a_record_of_its_own(change: dict[str, str | int]) -> None:
    assert len(in_order([GATHER, dataclasses.replace(GATHER, **change)])) == 2


def test_that_two_sends_of_a_router_happen_to_be_as_large_says_nothing() -> None:
    """A prediction has the sizes of a whole step in its passes, so there others than the measured ones may be alike."""
    larger = dataclasses.replace(GATHER, bytes=101)
    measured, predicted, fewer = map(in_order, ([GATHER, GATHER, SUM], [GATHER, larger, SUM], [GATHER, SUM]))
    assert measured != predicted
    assert without_bytes(measured) == without_bytes(predicted) != without_bytes(fewer)


def test_a_step_with_too_many_sends_keeps_their_totals_and_gives_up_their_order() -> None:
    sends = [dataclasses.replace(each, bytes=size) for size in range(1, MOST_SENDS) for each in (GATHER, SUM)]
    told = in_order(sends)
    assert [(each.operation, each.count) for each in told] == [(s.operation, MOST_SENDS - 1) for s in (GATHER, SUM)]
    assert exchanges_of(told) == exchanges_of(sends)


def test_exchanges_are_totals_over_phases_and_groups() -> None:
    update = dataclasses.replace(SUM, phase="update", group="all", count=3, bytes=24)
    assert exchanges_of([SUM, GATHER, update]) == (Exchange("all_gather", 1, 100), Exchange("all_reduce", 4, 32))
    assert exchanges_of([]) == ()


@pytest.mark.parametrize(
    ("framework", "row"), [pytest.param(*each, id=f"{each[0]}:{each[1].name}") for each in every_row()]
)
def test_every_row_predicts_phases_in_the_order_of_a_step(framework: str, row: StrategyInfo) -> None:
    """Forward comes first and the update last; what is sent has a size and a group."""
    for workload in (sized(row, model) for model in SIZED if takes(row, model)):
        devices = 4 if row.axes else 1
        asked = RunConfig(framework, row.name, workload, devices=devices, batch_size=48)
        run = parse(asked)
        sends = row.cost(run, row.backend).sends
        phases = [send.phase for send in sends]
        assert "update" not in phases or set(phases[phases.index("update") :]) == {"update"}
        assert all(send.bytes > 0 and send.count > 0 and send.ranks > 1 for send in sends)
        assert {send.group for send in sends} <= {run.mesh.only_axis}
