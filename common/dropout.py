"""Which elements dropout keeps: a function of (seed, step, layer, GLOBAL example, element), and of nothing else.

So the mask is the same whatever the number of shards, ranks, micro-batches or recomputations, and it is the same in all
frameworks: a 32-bit mixing function in 64-bit integers, whose products stay below 2^63. It is written with operators that
Python's integers, NumPy's arrays and the tensors of both frameworks have, so each computes it on its own device.

References:
    Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3" (counters instead of a state); Wellons and others,
    nullprogram.com/blog/2018/07/31 (the constants, from the thread of its prospector).
"""

from typing import TypeVar

import numpy as np

Integers = TypeVar("Integers")
"""Python's integers, or an array or a tensor of 64-bit ones."""

BITS = 2**32 - 1
_START = 0x9E3779B9


def mix(x: Integers) -> Integers:
    """Mixes numbers of 32 bits: each bit of the result depends on every bit of the argument."""
    x = x ^ (x // 2**16)
    x = (x * 0x21F0AAAD) & BITS
    x = x ^ (x // 2**15)
    x = (x * 0x735A2D97) & BITS
    return x ^ (x // 2**15)


def fold(key: int, number: Integers) -> Integers:
    """Makes a key of a key and one more number.

    Args:
        key: Of 32 bits.
        number: Below 2^32.
    """
    return mix((number + mix(key ^ _START)) & BITS)


def example_keys(seed: int, step: int, first: int, count: int) -> np.ndarray:
    """The keys of neighbouring examples of a global batch, int64.

    Args:
        seed: Of the run.
        step: The number of the step, from 0.
        first: The place of the first example in the global batch.
        count: How many there are.
    """
    of_step = fold(fold(fold(0, seed & BITS), seed >> 32), step)
    return fold(of_step, np.arange(first, first + count, dtype=np.int64))


def keeps(keys: Integers, elements: Integers, layer: int, rate: float) -> Integers:
    """Whether each element of each example is kept.

    Args:
        keys: The key of each example, with dims of one behind the first.
        elements: The index of each element in the unsharded activation of one example.
        layer: Which dropout of the model, from 0.
        rate: The share of elements that are dropped.
    """
    return mix(keys ^ fold(layer, elements)) >= round(rate * 2**32)
