"""Compressed exchanges in NumPy: exact values, worked out by hand."""

import numpy as np
import pytest

from samestep.common.program import Arrays
from samestep.common.reference.compression import bf16, exchange, fp16, quantise, sum_of_halves, sum_of_int8
from samestep.common.request import RunConfig
from samestep.common.run import parse
from samestep.common.techniques import Techniques


def array(*values: float) -> np.ndarray:
    return np.array(values)


def test_halves_are_rounded_to_the_nearest_and_ties_to_even() -> None:
    tie = 1 + 2.0**-8  # between 1 and 1 + 2^-7
    assert bf16(array(tie, tie + 2.0**-7, 1 + 2.0**-9, -tie)).tolist() == [1, 1 + 2.0**-6, 1, -1]
    assert fp16(array(1 + 2.0**-11, 1 + 3 * 2.0**-11, 65504, 1e5, 2.0**-25)).tolist() == [
        1,
        1 + 2.0**-9,
        65504,
        np.inf,
        0,
    ]


def test_bf16_is_the_upper_half_of_float32() -> None:
    values = np.random.default_rng(0).normal(size=1000).astype(np.float32)
    rounded = bf16(values)
    assert not (rounded.view(np.uint32) & 0xFFFF).any()
    assert np.abs(rounded / values - 1).max() <= 2.0**-8


def test_a_sum_of_halves_is_rounded_once_more() -> None:
    small, large = 1 + 2.0**-7, 256.0
    assert sum_of_halves([array(large), array(small)], bf16).tolist() == [258]  # 257.0078 is nearer to 258 than to 256
    assert sum_of_halves([array(large), array(small)], fp16).tolist() == [257]


def test_quantised_numbers_are_whole_and_ties_go_to_even() -> None:
    assert quantise(array(127, -127, 0.5, 1.5, 2.5, -0.5, 0), 127.0).tolist() == [127, -127, 0, 2, 2, 0, 0]
    assert quantise(array(0, 0), 0.0).tolist() == [0, 0]


def test_int8_rounds_twice_and_keeps_what_it_left_out() -> None:
    first, second = array(127, 0.25, -3.5), array(1, 0.5, 100)
    total, residuals, of_sum = sum_of_int8([first, second], [np.zeros(3)] * 2, np.zeros(3))
    # The common scale is 1: what is sent is [127, 0, -4] and [1, 0, 100], whose sum is [128, 0, 96].
    assert [left.tolist() for left in residuals] == [[0, 0.25, 0.5], [0, 0.5, 0]]
    # The sum is sent as [127, 0, 95], since 96 * 127 / 128 is 95.25; its scale is 128 / 127.
    assert total == pytest.approx([128, 0, 95 * 128 / 127], rel=1e-15)
    assert of_sum == pytest.approx([0, 0, 96 - 95 * 128 / 127], abs=1e-13)


def test_int8_of_zeros_is_zero() -> None:
    total, residuals, of_sum = sum_of_int8([np.zeros(2)] * 2, [np.zeros(2)] * 2, np.zeros(2))
    assert not any(value.any() for value in (total, *residuals, of_sum))


def test_a_tie_of_the_sum_is_one_in_every_unit() -> None:
    """Half of the largest sum is 63.5, whatever the last bit of the scale."""
    for scale in (1.0, 1 / 3, 0.1, 7.7e-5):
        values = scale * array(127, 100, 50) / 127
        total, *_ = sum_of_int8([values, scale * array(73, 100, 50) / 127], [np.zeros(3)] * 2, np.zeros(3))
        assert total[2] / total[1] == pytest.approx(64 / 127, rel=1e-12)


def gradients(step: int, ranks: int) -> list[Arrays]:
    stream = np.random.default_rng(step)
    shapes = {"layer/kernel": (6, 5), "layer/bias": (5,)}
    return [{name: stream.normal(size=shape) for name, shape in shapes.items()} for _ in range(ranks)]


@pytest.mark.parametrize("ranks", [2, 3])
def test_what_is_left_out_comes_later(ranks: int) -> None:
    """Everything that was sent and everything that is kept add up to the sum of all gradients."""
    run = parse(RunConfig("torch", "ddp", "synthetic-mlp", 2, techniques=Techniques(compress="int8")))
    sent, wanted, kept = 0.0, 0.0, ()
    for step in range(20):
        parts = gradients(step, ranks)
        total, kept = exchange(run, parts, kept)
        sent, wanted = sent + total["layer/kernel"], wanted + sum(part["layer/kernel"] for part in parts)
    left = sum(held["residual/layer/kernel"] for held in kept) + kept[0]["sum_residual/layer/kernel"]
    assert np.abs(left).max() > 1e-3
    assert sent + left == pytest.approx(wanted, abs=1e-12)
