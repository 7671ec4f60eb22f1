"""Numbers that were rounded to few digits are known by their bits: the sum of the bits ends in as many zeros."""

import dataclasses

import numpy as np
import pytest

from samestep.common.judging.recorded.walk import digits_of
from samestep.common.mistakes.evidence import Evidence, Side
from samestep.common.mistakes.few_digits import BF16, FP16, FewDigits, rounded
from samestep.common.mistakes.seen_tensor import SeenTensor
from samestep.common.steps.projections import sum_of_bits
from tests.recording.numpy_script import _bf16

SIDE = Side(1, 1, 1, 1.0, (1.0,), None, {}, (), (), False, ())


def numbers(kind: str) -> np.ndarray:
    drawn = np.random.default_rng(0).normal(size=64).astype(np.float32)
    return {"bf16": _bf16(drawn), "fp16": drawn.astype(np.float16).astype(np.float32)}.get(kind, drawn)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("kind", "most", "least"), [("bf16", 7, 4), ("fp16", 10, 8), ("float32", 23, 18)])
def test_the_sum_of_bits_has_the_digits(kind: str, most: int, least: int, dtype: str) -> None:
    found = digits_of(sum_of_bits(numbers(kind).astype(dtype)), dtype)
    assert min(least, 18) <= found <= most
    assert digits_of(0, dtype) is None and digits_of(3, "bfloat16") is None


def tensor(name: str, off: float, digits: tuple[int, int] | None) -> SeenTensor:
    draw = np.random.default_rng(len(name))
    one = draw.normal(size=8)
    apart = draw.normal(size=8)
    apart *= off * np.linalg.norm(one) / np.linalg.norm(apart)
    return SeenTensor(name, "kernel", "parameter", 64, one, one + apart, 1e-7, 10.0, digits=digits)


def evidence(off: float, digits: tuple[int, int] | None = (23, 23), world: int = 1) -> Evidence:
    seen = tuple(tensor("w" * length, off * (1 + length / 4), digits) for length in (0, 2, 4))
    return Evidence("gradient", 0, SIDE, dataclasses.replace(SIDE, world=world), seen)


@pytest.mark.parametrize(
    ("off", "digits", "to", "is_named"),
    [
        (6e-3, (23, 7), BF16, True),
        (6e-3, (7, 23), BF16, True),
        (6e-3, (23, 10), BF16, False),
        (6e-3, (7, 7), BF16, False),
        (6e-3, None, BF16, False),
        (6e-3, (23, 5), BF16, True),  # by chance, the sums end in more zeros
        (2e-2, (23, 3), BF16, False),  # float8
        (1e-3, (23, 23), BF16, False),  # noise of the size of such rounding
        (1.4e-3, (23, 9), BF16, True),  # times three
        (1.4e-3, (23, 9), FP16, False),
        (1.4e-3, (23, 10), BF16, True),  # times five
        (1.4e-3, (23, 10), FP16, False),
        (2e-2, (23, 5), BF16, False),  # float8 times three
        (2e-4, (23, 10), FP16, True),
        (1.5e-4, (23, 12), FP16, True),  # times three
        (2e-4, (23, 14), FP16, False),
        (2e-4, (23, 10), BF16, False),
        (0.1, (23, 7), BF16, False),
    ],
)
def test_few_digits_name_what_the_size_of_the_error_does_not(
    off: float, digits: tuple[int, int] | None, to: FewDigits, is_named: bool
) -> None:
    found = evidence(off, digits)
    assert (rounded(to, found) is not None) is is_named
    assert (rounded(to, found.swapped()) is not None) is is_named


def test_after_a_sum_over_processes_the_size_of_the_error_says_it() -> None:
    by_size, by_digits = rounded(BF16, evidence(1e-3, world=3)), rounded(BF16, evidence(6e-3, (23, 7), world=3))
    assert by_size and "noise of that size" in by_size["or_else"]
    assert by_digits and not by_digits["or_else"]
    assert rounded(BF16, evidence(6e-3, world=3)) is None
    assert rounded(BF16, evidence(4e-4, world=3)) is None  # float16, summed in float16
    assert rounded(BF16, evidence(4e-4, world=16)) is not None  # the mean of sixteen errs by less


def test_what_was_summed_in_few_digits_errs_by_more() -> None:
    assert rounded(BF16, evidence(2e-2, (23, 7), world=4)) is not None
    assert [rounded(to, evidence(1.4e-3, (23, 10), world=4)) for to in (BF16, FP16)] == [None, None]  # it may be either
