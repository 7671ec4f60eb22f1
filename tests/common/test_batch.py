import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from samestep.common.batch import WHOLE, Batch, BatchPart, Chunk, batches
from samestep.common.mesh import Mesh

few = settings(derandomize=True, deadline=None, max_examples=40)


def stream(examples, size, seed, start=0, steps=12):
    inputs = np.arange(examples * 2).reshape(examples, 2)
    return list(itertools.islice(batches(inputs, inputs[:, 0] * 10, size, seed, start), steps))


def indices(taken):
    return np.stack([batch.indices for batch in taken])


@few
@given(st.integers(1, 5), st.integers(1, 4), st.integers(0, 30), st.integers(0, 2**40))
def test_the_shards_in_order_are_the_batch_whatever_their_number(per_shard, count, spare, seed):
    for batch in stream(per_shard * count + spare, per_shard * count, seed, steps=3):
        whole = batch.rows()
        shards = [batch.rows(WHOLE.split(index, count)) for index in range(count)]
        assert all(len(inputs) == len(targets) == per_shard for inputs, targets in shards)
        for part in (0, 1):
            np.testing.assert_array_equal(np.concatenate([shard[part] for shard in shards]), whole[part])


def test_a_batch_holds_the_examples_that_its_indices_name():
    inputs, targets = np.arange(10) * 2, np.arange(10) * 3
    taken = Batch(0, np.array([7, 1, 4]), inputs, targets).rows()
    np.testing.assert_array_equal(taken, [[14, 2, 8], [21, 3, 12]])


def test_a_part_has_its_positions_of_its_examples():
    inputs = np.arange(4 * 6).reshape(4, 6)
    batch = Batch(0, np.array([3, 0, 1, 2]), inputs, -inputs)
    taken, targets = batch.rows(BatchPart(Chunk(1, 2), Chunk(2, 3)))
    np.testing.assert_array_equal(taken, inputs[[1, 2], 4:])
    np.testing.assert_array_equal(targets, -taken)


def test_the_part_of_a_device_follows_from_its_place_on_the_mesh():
    mesh = Mesh.parse("pipe=2,data=2,tensor=2")
    parts = [BatchPart.of(mesh, rank) for rank in range(8)]
    assert [part.examples.index for part in parts] == [0, 0, 1, 1] * 2
    assert {(part.examples.count, part.positions, part.count) for part in parts} == {(2, Chunk(), 2)}
    assert parts[2].split(1, 3) == BatchPart(Chunk(4, 6))


def test_rows_are_copies():
    batch = stream(8, 4, seed=0)[0]
    batch.rows(WHOLE.split(0, 2))[0][:] = -1
    assert batch.inputs.min() == 0


def test_a_batch_that_does_not_divide_is_a_broken_promise():
    with pytest.raises(AssertionError, match="checked"):
        stream(8, 4, seed=0)[0].rows(WHOLE.split(0, 3))


@few
@given(st.integers(1, 20), st.integers(0, 20), st.integers(0, 2**40), st.integers(0, 25))
def test_a_stream_that_continues_is_the_uninterrupted_one(size, spare, seed, start):
    whole = stream(size + spare, size, seed, steps=start + 5)[start:]
    continued = stream(size + spare, size, seed, start, steps=5)
    assert [batch.step for batch in continued] == list(range(start, start + 5))
    np.testing.assert_array_equal(indices(continued), indices(whole))


@few
@given(st.integers(1, 6), st.integers(1, 6), st.integers(0, 2**40))
def test_an_epoch_is_a_permutation_of_the_examples(size, steps_per_epoch, seed):
    examples = size * steps_per_epoch
    for epoch in range(3):
        taken = stream(examples, size, seed, start=epoch * steps_per_epoch, steps=steps_per_epoch)
        assert sorted(indices(taken).ravel()) == list(range(examples))


def test_the_incomplete_batch_at_the_end_of_an_epoch_is_dropped():
    epochs = indices(stream(11, 4, seed=0, steps=8)).reshape(4, 8)
    assert all(len(set(epoch)) == 8 for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 4


def test_epochs_and_seeds_have_orders_of_their_own():
    orders = {
        tuple(indices(stream(20, 20, seed, start=epoch, steps=1)).ravel()) for seed in range(3) for epoch in range(3)
    }
    assert len(orders) == 9
