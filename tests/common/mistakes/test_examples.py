"""Mistakes in what a step is given, of which one looks like another."""

import collections
import dataclasses

import numpy as np
import pytest

from samestep.common.judging.recorded.passes import DataPasses
from samestep.common.mistakes.evidence import Evidence, Side
from samestep.common.mistakes.seen_tensor import SeenTensor
from samestep.common.mistakes.table import causes
from samestep.common.steps.projections import PROJECTIONS
from samestep.common.steps.recorded_run import RunStep, digest_of


def side(rows: tuple[int, ...], repeated: int) -> Side:
    """One of two runs whose steps have the same examples altogether."""
    known = {"again": 0, "alone": 0, "repeated": repeated}
    return Side(1, 1, 1, 1.0, (), {0: rows}, {}, (), (hash(rows),), True, (), **known)


@pytest.mark.parametrize(("repeated", "expected"), [(0, "dropped_shard"), (4, "repeated_in_a_pass")])
@pytest.mark.parametrize("is_swapped", [False, True])
def test_a_last_batch_that_examples_of_the_same_pass_fill_up_is_not_a_whole_one(
    repeated: int, expected: str, is_swapped: bool
) -> None:
    """As where a data set of TensorFlow is repeated before it is cut into batches: the other run is missing none."""
    evidence = Evidence("data", 3, side((1, 2, 3), 0), side((1, 2, 3, 4), repeated))
    found = causes(evidence.swapped() if is_swapped else evidence)
    assert [each.name for each in found] == [expected]


@pytest.mark.parametrize(("alone", "expected"), [(0, ["repeated_in_a_pass"]), (9, [])])
def test_examples_that_come_again_among_many_others_are_alike_by_chance(alone: int, expected: list[str]) -> None:
    """As pairs of words with random negative ones: nearly all are other examples."""
    other = dataclasses.replace(side((1, 5, 6, 5), 1), alone=alone)
    assert [each.name for each in causes(Evidence("data", 0, side((1, 2, 3, 4), 0), other))] == expected


def test_nothing_is_repeated_where_a_step_that_accumulates_counts_no_example_of_the_pass_that_it_begins() -> None:
    """Lightning leaves a validation open, for which the batches of the next epoch count."""
    passes = DataPasses()
    for number, rows in enumerate([(1, 2), (3, 4), (1, 2), (3, 4)]):
        counts = {} if number % 2 else {"data_passes": 2, "loaded_examples": 4 if number == 0 else 0}
        passes.add(RunStep(number, rows={0: rows}, passes=2, counts=counts))
    assert passes.repeated == 0


def test_a_shard_is_missing_from_a_first_step_whatever_comes_again_later() -> None:
    """A last batch that is filled up, in every pass, has as many repeated ones in the end."""
    found = causes(Evidence("data", 0, side((1, 2, 3, 4), 4), side((1, 2), 0)))
    assert [each.name for each in found] == ["dropped_shard"]


def test_examples_without_a_target_are_no_missing_ones() -> None:
    """As those that a teacher is called on, if that is the model itself in one of two runs."""
    targets = (collections.Counter(range(number)) for number in (2, 2, 4))
    less, same, more = (
        dataclasses.replace(side(rows, 0), targets=each)
        for rows, each in zip(((1, 2), (1, 2, 3, 4), (1, 2, 3, 4)), targets, strict=True)
    )
    found = [[each.name for each in causes(Evidence("data", 0, less, other))] for other in (same, more)]
    assert found == [[], ["dropped_shard"]]


def test_a_packed_text_that_is_a_word_shorter_is_missing_no_example() -> None:
    whole, shorter = (dataclasses.replace(side(rows, 0), again=1) for rows in ((1, 2, 1, 3), (1, 2, 1)))
    assert not causes(Evidence("data", 0, whole, shorter))


def test_a_batch_that_is_as_large_as_two_of_a_later_pass_is_missing_none() -> None:
    """Passes in one order: the examples of the next step have been a step before."""
    less = dataclasses.replace(
        side((1, 2), 0), digests=[*map(digest_of, ((1, 2), (3, 4), (1, 2)))], following=collections.Counter((3, 4))
    )
    evidence = Evidence("data", 2, less, side((1, 2, 3, 4), 0))
    found = [[each.name for each in causes(one)] for one in (evidence, evidence.swapped())]
    assert found == [[]] * 2  # over all steps they are the same, in one order


def shuffled(steps: tuple[int, ...], step: int, again: int = 2) -> Side:
    """A run that is given whole batches, each called by its number, and the step that is judged."""
    known = {"again": again, "alone": 0, "repeated": None, "later": steps[step + 1 :]}
    rows = {0: (steps[step],)}
    return Side(1, 1, 1, 1.0, (), rows, {}, (), steps[: step + 1], False, (), **known)


@pytest.mark.parametrize(
    ("ours", "theirs", "step", "again", "expected"),
    [
        ((0, 1, 2, 3, 4, 5), (0, 1, 0, 1, 2, 3), 2, 2, ["position_lost"]),  # begins again
        ((0, 1, 2, 3, 4, 5), (0, 1, 4, 5, 6, 7), 2, 2, ["position_lost"]),  # what waited in a buffer is lost
        ((0, 1, 2), (0, 1, 0), 2, 2, ["position_lost"]),
        ((7, 0, 8, 1, 7, 0), (0, 0, 1, 1, 0, 0), 0, 2, []),  # each second one is of another loader
        ((7, 0), (0, 0), 0, 2, []),
        ((0, 0, 1, 1, 2, 2), (0, 0, 2, 2, 1, 1), 2, 0, ["other_order"]),  # folds
    ],
)
@pytest.mark.parametrize("is_swapped", [False, True])
def test_a_place_in_the_data_is_lost_where_the_steps_after_it_go_on_from_there(
    ours: tuple[int, ...], theirs: tuple[int, ...], step: int, again: int, expected: list[str], is_swapped: bool
) -> None:
    evidence = Evidence("data", step, *(shuffled(each, step, again) for each in (ours, theirs)))
    found = causes(evidence.swapped() if is_swapped else evidence)
    assert [each.name for each in found] == expected


@pytest.mark.parametrize("is_swapped", [False, True])
def test_a_model_that_is_called_once_more_on_its_examples_has_lost_no_place_in_the_data(is_swapped: bool) -> None:
    """As where a term of the loss calls it again, and other steps take the same examples once."""
    once = dataclasses.replace(shuffled((0, 0, 0, 0), 0), rows={0: (1, 2)})
    twice = dataclasses.replace(shuffled((9, 9, 0, 0), 0), rows={0: (1, 2, 1, 2)})
    one, other = np.ones(PROJECTIONS), np.arange(PROJECTIONS, dtype=float)
    gradient = SeenTensor("w", "kernel", "parameter", 64, one, other, 1e-7, 10.0)
    evidence = Evidence("data", 0, once, twice, [gradient])
    found = causes(evidence.swapped() if is_swapped else evidence)
    assert "position_lost" not in [each.name for each in found]


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        ((1, 2, 3, 4), (1, 2, 1, 2, 3, 4, 3, 4), []),  # each of two tasks takes two steps within, as in meta-learning
        ((1, 2, 3, 4), (1, 2, 3, 4, 1), ["padded_sample_twice"]),
        ((1, 2, 2, 3), (1, 2, 2, 3, 1, 2, 3), []),  # a penalty on other inputs: none is missing
        ((1, 2, 3, 4), (1, 2), ["dropped_shard"]),
    ],
)
@pytest.mark.parametrize("is_swapped", [False, True])
def test_a_model_that_is_called_again_on_some_examples_is_given_no_others(
    ours: tuple[int, ...], theirs: tuple[int, ...], expected: list[str], is_swapped: bool
) -> None:
    evidence = Evidence("data", 0, side(ours, 0), side(theirs, 0))
    found = causes(evidence.swapped() if is_swapped else evidence)
    assert [each.name for each in found] == expected


@pytest.mark.parametrize(("is_elsewhere", "expected"), [(False, ["dropped_shard"]), (True, [])])
def test_a_smaller_batch_whose_rest_comes_in_another_step_is_missing_none(
    is_elsewhere: bool, expected: list[str]
) -> None:
    """As where each of two workers makes batches of half the size, which come in turn."""
    more = dataclasses.replace(side((1, 2, 3, 4), 0), is_elsewhere=is_elsewhere)
    assert [each.name for each in causes(Evidence("data", 0, more, side((1, 2), 0)))] == expected
