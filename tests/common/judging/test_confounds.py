"""The linter names every difference that is not the strategy, and every disturbance; what is allowed it lets pass."""

import dataclasses

import pytest

from samestep.common.errors import ConfigError
from samestep.common.judging.confounds import (
    CONFOUNDS,
    Circumstances,
    Confound,
    check_allowed,
    find_confounds,
    find_in_rounds,
    split_allowed,
)

QUIET = Circumstances(label="torch:ddp", facts={"batch": {"": "48"}, "machine": {"host": "a", "CPU": "x"}})
OTHER = dataclasses.replace(QUIET, label="torch:fsdp")


def said(one: Circumstances, other: Circumstances, is_same_strategy: bool = False) -> list[str]:
    return [str(each) for each in find_confounds(one, other, is_same_strategy)]


def test_two_runs_that_differ_in_their_strategy_only_are_ranked() -> None:
    assert said(QUIET, OTHER) == []


def test_a_fact_that_differs_is_named_with_both_values_and_its_part() -> None:
    changed = dataclasses.replace(OTHER, facts={"batch": {"": "96"}, "machine": {"host": "b", "CPU": "x"}})
    assert said(QUIET, changed) == ["batch (48 and 96)", "machine (host a and b)"]


def test_what_only_one_of_them_recorded_says_nothing() -> None:
    older = dataclasses.replace(OTHER, facts={"machine": {"CPU": "x"}})
    assert said(QUIET, older) == said(older, QUIET) == []


def test_a_workload_that_is_spelled_or_described_in_another_way_is_the_same() -> None:
    one, two, three = (
        dataclasses.replace(QUIET, facts={"workload": {"": name, "digest": digest}})
        for name, digest in (("a", "11"), ("b", "11"), ("b", "22"))
    )
    assert said(one, two) == said(two, three) == []
    assert said(one, three) == ["workload (a and b, digest 11 and 22)"]


def test_a_workload_that_differs_is_not_named_beside_the_reason() -> None:
    one, other = (
        dataclasses.replace(QUIET, facts={"workload": {"": name}, "parameters": {"": count}})
        for name, count in (("a", "10"), ("b", "20"))
    )
    assert said(one, other) == ["parameters (10 and 20)"]
    alike = dataclasses.replace(other, facts={"workload": {"": "b"}, "parameters": {"": "10"}})
    assert said(one, alike) == ["workload (a and b)"]


@pytest.mark.parametrize("name", ["shared-cores", "emulation"])
def test_what_distorts_a_strategy_stops_a_ranking_but_not_a_repetition(name: str) -> None:
    distorted = dataclasses.replace(OTHER, distorted={name: "how"})
    assert said(QUIET, distorted) == said(distorted, QUIET) == [f"{name} (torch:fsdp: how)"]
    assert said(distorted, dataclasses.replace(distorted, label="then"), is_same_strategy=True) == []
    assert said(distorted, QUIET, is_same_strategy=True) == [f"{name} (torch:fsdp: how)"]


@pytest.mark.parametrize("is_same_strategy", [False, True])
def test_what_disturbed_either_run_stops_both(is_same_strategy: bool) -> None:
    noisy = dataclasses.replace(OTHER, others_share=0.07, stolen_share=0.04, compilations=2)
    assert said(QUIET, noisy, is_same_strategy) == [
        "compilation (torch:fsdp: 2 in timed windows)",
        "busy (torch:fsdp: 7 % to other processes and 4 % to other machines)",
    ]


@pytest.mark.parametrize(("others", "stolen", "is_busy"), [(0.1, 0.0, False), (0.101, None, True), (0.0, 0.11, True)])
def test_a_tenth_of_the_cores_may_be_taken(others: float, stolen: float | None, is_busy: bool) -> None:
    run = dataclasses.replace(OTHER, others_share=others, stolen_share=stolen)
    assert bool(said(QUIET, run)) == is_busy


def test_what_was_found_in_some_rounds_says_in_how_many() -> None:
    noisy = dataclasses.replace(OTHER, others_share=0.5)
    bigger = dataclasses.replace(OTHER, facts={"batch": {"": "96"}})
    found = find_in_rounds([(QUIET, bigger), (QUIET, dataclasses.replace(bigger, others_share=0.5))])
    assert [str(each) for each in found] == [
        "batch (48 and 96)",
        "busy (torch:fsdp: 50 % to other processes, in 1 of 2 rounds)",
    ]
    assert find_in_rounds([(QUIET, OTHER), (QUIET, OTHER)]) == []
    assert [each.name for each in find_in_rounds([(QUIET, noisy)] * 2)] == ["busy"]


def test_what_is_allowed_is_set_apart() -> None:
    batch, busy = Confound("batch", "48 and 96"), Confound("busy", at_fault={"torch:ddp": "much"})
    assert split_allowed([batch, busy], {"busy", "machine"}) == ([batch], [busy])


def test_only_confounds_can_be_allowed() -> None:
    assert check_allowed(CONFOUNDS) == set(CONFOUNDS)
    with pytest.raises(ConfigError, match=r"unknown confound 'buzy'. Did you mean 'busy'\? Choose from: dtype, "):
        check_allowed(["batch", "buzy"])
