"""A digest says which examples a batch has, in whatever order and in whatever parts."""

import dataclasses

import numpy as np
import pytest

from samestep.common.batch import Batch
from samestep.common.runtime.worker.step_log import RowDigests
from samestep.common.workload.data.several import together

INPUTS = np.random.default_rng(0).normal(size=(40, 3))
TARGETS = np.arange(40) % 10
EVERY = Batch(0, np.arange(40), INPUTS, TARGETS)


def digest(batch: Batch) -> int:
    return RowDigests(INPUTS, TARGETS).digests([batch])[0]


def test_the_order_of_the_examples_does_not_count() -> None:
    mixed = dataclasses.replace(EVERY, indices=np.random.default_rng(1).permutation(40))
    assert digest(mixed) == digest(EVERY)


@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("micro_batches", [1, 2, 5])
def test_the_digests_of_shards_and_micro_batches_add_up(ranks: int, micro_batches: int) -> None:
    parts = [EVERY.part(r, ranks).part(m, micro_batches) for r in range(ranks) for m in range(micro_batches)]
    assert sum(map(digest, parts)) % 2**64 == digest(EVERY)


def test_another_example_another_target_and_one_taken_twice_show() -> None:
    first = dataclasses.replace(EVERY, indices=np.arange(4))
    others = [
        dataclasses.replace(EVERY, indices=np.array(indices)) for indices in ([0, 1, 2, 4], [0, 1, 2, 2], [0, 1, 2])
    ]
    found = {digest(first), *map(digest, others), RowDigests(INPUTS, TARGETS + 1).digests([first])[0]}
    assert len(found) == 5


def test_batches_that_share_examples_are_digested_as_each_alone() -> None:
    batches = [Batch(step, np.random.default_rng(step).permutation(40)[:8], INPUTS, TARGETS) for step in range(30)]
    together_ = RowDigests(INPUTS, TARGETS)
    assert (*together_.digests(batches[:7]), *together_.digests(batches[7:])) == tuple(map(digest, batches))


def test_records_of_several_arrays_have_digests() -> None:
    inputs = together({"image": INPUTS, "id": TARGETS})
    other = together({"image": INPUTS, "id": TARGETS + 1})
    one, two = (RowDigests(each, TARGETS).digests([EVERY]) for each in (inputs, other))
    assert one != two
