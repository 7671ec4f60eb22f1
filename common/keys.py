"""The keys of examples, which decide everything random about them: a function of (seed, step, GLOBAL example) only.

They come from a 32-bit mixing function in 64-bit integers, whose products stay below 2^63. It is written with operators that
Python's integers, NumPy's arrays and the tensors of both frameworks have, so each computes it on its own device.

References:
    Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3" (counters instead of a state); Wellons and others,
    nullprogram.com/blog/2018/07/31 (the constants, from the thread of its prospector).
"""

import operator
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

Integers = TypeVar("Integers", bound=Any)
"""Python's integers, or an array or a tensor of 64-bit ones."""
Shift = Callable[[Integers, int], Integers]

BITS = 2**32 - 1
_START = 0x9E3779B9


def mix(x: Integers, shift: Shift = operator.rshift) -> Integers:
    """Mixes numbers of 32 bits: each bit of the result depends on every bit of the argument.

    Args:
        x: The numbers, which are not changed. One array is allocated and then changed in place, since memory dominates the time
            of a mask.
        shift: Shifts to the right; TensorFlow has no operator for it.
    """
    x = x ^ shift(x, 16)
    x *= 0x21F0AAAD
    x &= BITS
    x ^= shift(x, 15)
    x *= 0x735A2D97
    x &= BITS
    x ^= shift(x, 15)
    return x


def fold(key: int, number: Integers, shift: Shift = operator.rshift) -> Integers:
    """Makes a new key from a key and a number.

    Args:
        key: The key of 32 bits.
        number: The number, below 2^32.
        shift: As for `mix`.
    """
    return mix((number + mix(key ^ _START)) & BITS, shift)


def example_keys(seed: int, step: int, first: int, count: int) -> np.ndarray:
    """Returns the keys of neighbouring examples of a global batch, int64.

    Args:
        seed: The seed of the run.
        step: The number of the step, from 0.
        first: The place of the first example in the global batch.
        count: The number of examples.
    """
    of_step = fold(fold(fold(0, seed & BITS), seed >> 32), step)
    return fold(of_step, np.arange(first, first + count, dtype=np.int64))
