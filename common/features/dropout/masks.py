"""The elements that dropout keeps: a function of (seed, step, layer, GLOBAL example, element) only.

So the mask is the same for any number of shards, ranks, micro-batches or recomputations, and it is the same in all
frameworks. Each computes it on its own device, from the keys of its examples.
"""

import operator

from samestep.common.keys import Integers, Shift, fold, mix


def keeps(keys: Integers, elements: Integers, layer: int, rate: float, shift: Shift = operator.rshift) -> Integers:
    """Returns whether each element of each example is kept.

    Args:
        keys: The key of each example, followed by dims of size one.
        elements: The index of each element in the unsharded activation of one example.
        layer: The number of the dropout in the model, from 0.
        rate: The share of elements that are dropped.
        shift: As for `mix`.
    """
    return mix(keys ^ fold(layer, elements, shift), shift) >= round(rate * 2**32)
