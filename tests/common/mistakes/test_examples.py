"""Mistakes in what a step is given, of which one looks like another."""

import pytest

from samestep.common.mistakes.evidence import Evidence, Side
from samestep.common.mistakes.table import causes


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
