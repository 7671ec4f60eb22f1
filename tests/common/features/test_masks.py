"""What dropout keeps is the same for ever: golden values, in Python's integers, in NumPy and in both frameworks."""

import numpy as np
import pytest

from samestep.common.batch import WHOLE, Batch
from samestep.common.features.dropout.masks import keeps
from samestep.common.keys import BITS, example_keys, mix

MIXED = {1: 2261973619, 2: 229111015, 0x12345678: 384267965, BITS: 2578835075}
"""A number of 32 bits, and what it is mixed to."""
KEYS = {
    (0, 0, 0): (3550322616, 3710779807, 3463318962),
    (7, 5, 2): (932670751,),
    (2**40 + 3, 0, 0): (715254500,),
}
"""(seed, step, first example) -> the keys of it and of those behind it."""
KEPT = {0: ("1101010001111010", "0101100101011100"), 3: ("0010010100101000", "0001011010110111")}
"""Layer -> which of 16 elements of the first two examples are kept at a rate of a half."""


def test_the_mixing_function_is_what_it_was() -> None:
    assert {x: mix(x) for x in MIXED} == MIXED
    numbers = np.array(list(MIXED))
    np.testing.assert_array_equal(mix(numbers), list(MIXED.values()))
    assert numbers.tolist() == list(MIXED), "it works in place, but not on what it is given"


@pytest.mark.parametrize("place", KEYS)
def test_the_keys_are_what_they_were(place: tuple[int, int, int]) -> None:
    assert example_keys(*place, len(KEYS[place])).tolist() == list(KEYS[place])


def spelled(kept: object) -> tuple[str, ...]:
    return tuple("".join(str(int(each)) for each in row) for row in np.asarray(kept))


@pytest.mark.parametrize("layer", KEPT)
def test_what_is_kept_is_what_it_was(layer: int) -> None:
    keys = example_keys(0, 0, 0, 2)[:, None]
    assert spelled(keeps(keys, np.arange(16), layer, 0.5)) == KEPT[layer]


def test_the_share_that_is_dropped_is_the_rate_in_every_layer() -> None:
    keys = example_keys(0, 1, 0, 64)[:, None]
    masks = [keeps(keys, np.arange(4096), layer, 0.1) for layer in range(3)]
    for mask in masks:  # 262144 draws: a deviation of 0.6e-3 is one standard deviation
        assert abs(mask.mean() - 0.9) < 3e-3
    for one, other in ((masks[0], masks[1]), (masks[0][:-1], masks[0][1:]), (masks[2][:, :-1], masks[2][:, 1:])):
        assert abs((one & other).mean() - 0.81) < 3e-3


def test_the_keys_of_shards_are_those_of_the_batch() -> None:
    batch = Batch(5, np.arange(12), np.zeros((12, 1)), np.zeros(12))
    whole = batch.keys(3)
    np.testing.assert_array_equal(np.concatenate([batch.keys(3, WHOLE.split(shard, 4)) for shard in range(4)]), whole)
    assert len(set(whole.tolist())) == 12
    assert not set(whole.tolist()) & set(Batch(6, batch.indices, batch.inputs, batch.targets).keys(3).tolist())
