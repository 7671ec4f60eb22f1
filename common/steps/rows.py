"""The hash of an example that a model was called on. This is the specification against which both recorders are tested.

Each number becomes a 64-bit word: a float as the bits of its float32, an integer or bool as int64. The hash of an example is the
sum of word x coefficient mod 2**64 over all its numbers, with its bits mixed. A device computes the sum, by one product and one
sum of integers. The coefficient depends on the place of the number in the example and on the place of the input among the
arguments of the model. So a zero at the end, such as padding, changes nothing. Images whose channels come last are read as if
the channels came first, as in other frameworks.

References:
    Multilinear hashing: Lemire and Kaser 2014, "Strongly universal string hashing is fast", The Computer Journal 57 (11). The
    mixer is the finalizer of splitmix64 (Vigna, public domain).
"""

import functools
from collections.abc import Callable, Sequence
from typing import Protocol, Self, TypeVar

import numpy as np

_FACTORS = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_STEP, _FIRST, _SECOND = map(np.uint64, _FACTORS)
_SHIFTS = 30, 27, 31
_HALF = np.dtype("<u4")
INPUT_STRIDE = 2**40
"""The distance between the coefficients of two inputs."""
MANY_PIXELS = 5
"""The smallest height and width, in pixels, of an input that is read as an image with channels last."""


@functools.lru_cache(256)
def coefficients(place: int, size: int) -> np.ndarray:
    """Returns the coefficients of an input.

    Args:
        place: The place of the input among the tensors of the call, from 0.
        size: The number of elements that an example has in the input.

    Returns:
        uint64 [size], all odd.
    """
    if size & (size - 1):  # the first of those of the next power of two, which inputs of many sizes share
        return coefficients(place, 1 << size.bit_length())[:size]
    index = np.arange(size, dtype=np.uint64) + np.uint64(place * INPUT_STRIDE + 1)
    return mix(index * _STEP) | np.uint64(1)


def mix(values: np.ndarray) -> np.ndarray:
    """Mixes the bits of each number.

    Args:
        values: uint64 of any shape.
    """
    first, second, third = map(np.uint64, _SHIFTS)
    values = (values ^ (values >> first)) * _FIRST
    values = (values ^ (values >> second)) * _SECOND
    return values ^ (values >> third)


def signed(value: int) -> int:
    """Returns the signed 64-bit integer that has the same bits as an unsigned one."""
    return value - 2**64 if value >= 2**63 else value


class Integers(Protocol):
    """A tensor of int64 on a device."""

    def __add__(self, other: int, /) -> Self: ...
    def __mul__(self, other: int, /) -> Self: ...
    def __and__(self, other: int, /) -> Self: ...
    def __or__(self, other: int, /) -> Self: ...
    def __xor__(self, other: Self, /) -> Self: ...


T = TypeVar("T", bound=Integers)


def signed_coefficients(place: int, index: T, shift: Callable[[T, int], T]) -> T:
    """Computes coefficients of an input on a device, whose integers are signed.

    Args:
        place: The place of the input among the tensors of the call, from 0.
        index: The places of the numbers in an example, of any shape.
        shift: Shifts such a tensor to the right, filling with the sign bit.

    Returns:
        int64, with the same bits as the values of `coefficients`.
    """

    def mixed(values: T, places: int) -> T:
        return values ^ (shift(values, places) & (1 << 64 - places) - 1)

    step, *factors = map(signed, _FACTORS)
    values = (index + (place * INPUT_STRIDE + 1)) * step
    for factor, places in zip(factors, _SHIFTS, strict=False):
        values = mixed(values, places) * factor
    return mixed(values, _SHIFTS[-1]) | 1


def is_channels_last(shape: Sequence[int | None]) -> bool:
    """Returns whether an input is read as images with channels last: two to four channels, and more pixels in either direction.

    Args:
        shape: [examples, height, width, channels]; None for an unknown size.
    """
    sizes = [each or 0 for each in shape[1:]]
    return len(sizes) == 3 and 1 < sizes[2] < MANY_PIXELS <= min(sizes[:2])


def words(values: np.ndarray) -> np.ndarray:
    """Returns the words of an input.

    Args:
        values: [examples, ...] of floats, integers or bools.

    Returns:
        uint64 [examples, numbers].
    """
    if is_channels_last(values.shape):
        values = np.moveaxis(values, 3, 1)
    flat = values.reshape(len(values), -1)
    if flat.dtype.kind in "biu":
        return flat.astype(np.int64).view(np.uint64)
    return np.ascontiguousarray(flat, np.float32).view(np.uint32).astype(np.uint64)


def hash_rows(inputs: Sequence[np.ndarray]) -> np.ndarray:
    """Hashes the examples of one call of a model.

    Args:
        inputs: Each [examples, ...], in the order of the arguments; keyword arguments by name.

    Returns:
        uint64 [examples].
    """
    return mix(sum(_sums(inputs), np.zeros(len(inputs[0]), np.uint64)))


def argument_sums(inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Returns a hash of each example in each argument of a call: the upper half of the argument's part of the example's sum.

    Args:
        inputs: As for `hash_rows`.

    Returns:
        uint32 [examples] for each argument.
    """
    return [upper_half(each) for each in _sums(inputs)]


def upper_half(sums: np.ndarray) -> np.ndarray:
    """Returns the upper 32 bits of each number, which depend on all bits of the words.

    Args:
        sums: 64-bit integers [examples].
    """
    return sums.view(_HALF)[1::2]


def _sums(inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    return [
        (each * coefficients(place, each.shape[1])).sum(axis=1, dtype=np.uint64)
        for place, each in enumerate(map(words, inputs))
    ]
