"""Compressed exchanges in NumPy: exact values, worked out by hand."""

import dataclasses
import itertools

import numpy as np
import pytest

from samestep.common.batch import batches
from samestep.common.program import Arrays
from samestep.common.reference.program import TrainingProgram
from samestep.common.request import RunConfig
from samestep.common.run import parse
from samestep.common.techniques import Techniques
from samestep.common.techniques.compress.statement import (
    bf16,
    exchange,
    fp16,
    orthogonalise,
    quantize,
    sum_of_factors,
    sum_of_halves,
    sum_of_int8,
)
from samestep.common.workload.data.dataset import load


def array(*values: object) -> np.ndarray:
    return np.array(values, np.float64)


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
    assert quantize(array(127, -127, 0.5, 1.5, 2.5, -0.5, 0), 127.0).tolist() == [127, -127, 0, 2, 2, 0, 0]
    assert quantize(array(0, 0), 0.0).tolist() == [0, 0]


NOTHING = [{}, {}]
"""What two ranks keep before the first exchange."""


def test_int8_rounds_twice_and_keeps_what_it_left_out() -> None:
    first, second = array(127, 0.25, -3.5), array(1, 0.5, 100)
    total, kept = sum_of_int8([first, second], NOTHING)
    # The common scale is 1: what is sent is [127, 0, -4] and [1, 0, 100], whose sum is [128, 0, 96].
    assert [own["residual"].tolist() for own in kept] == [[0, 0.25, 0.5], [0, 0.5, 0]]
    # The sum is sent as [127, 0, 95], since 96 * 127 / 128 is 95.25; its scale is 128 / 127.
    assert total == pytest.approx([128, 0, 95 * 128 / 127], rel=1e-15)
    assert kept[0]["sum_residual"] == pytest.approx([0, 0, 96 - 95 * 128 / 127], abs=1e-13)
    # Both kinds of residual are added to the next gradients: 0.25 + 0.25 and 0.5 + 0.5 are no longer lost.
    total, _ = sum_of_int8([array(127, 0.25, 0), array(1, 0.5, 0)], kept)
    assert total[1] == pytest.approx(128 / 127)


def test_int8_of_zeros_is_zero() -> None:
    total, kept = sum_of_int8([np.zeros(2)] * 2, NOTHING)
    assert not any(value.any() for value in (total, kept[0]["residual"], kept[1]["residual"], kept[0]["sum_residual"]))


def test_a_tie_of_the_sum_is_one_in_every_unit() -> None:
    """Half of the largest sum is 63.5, whatever the last bit of the scale."""
    for scale in (1.0, 1 / 3, 0.1, 7.7e-5):
        values = scale * array(127, 100, 50) / 127
        total, _ = sum_of_int8([values, scale * array(73, 100, 50) / 127], NOTHING)
        assert total[2] / total[1] == pytest.approx(64 / 127, rel=1e-12)


def test_a_matrix_of_low_rank_goes_through_its_factors_unchanged() -> None:
    left, right = np.arange(6.0).reshape(3, 2) + 1, array([1, 0], [0, 2], [1, 1], [3, 0])
    matrix = left @ right.T
    initial = array([1, 0], [0, 1], [0, 0], [1, 1])
    total, kept = sum_of_factors([matrix, 2 * matrix], NOTHING, initial)
    assert total == pytest.approx(3 * matrix, rel=1e-12)
    assert kept[0]["residual"] == pytest.approx(-0.5 * matrix, rel=1e-12), "what the mean has more than this rank"
    assert kept[0]["factor"].shape == (4, 2)


def test_a_column_that_became_zero_is_drawn_again() -> None:
    """A matrix of rank 1 leaves the second column zero; when the rank grows, it is needed again."""
    initial, low = array([1, 0], [0, 1], [0, 0]), np.outer([1, 2], [1, 1, 0])
    _, kept = sum_of_factors([low, low], NOTHING, initial)
    assert not kept[0]["factor"][:, 1].any()
    full = low + np.outer([2, -1], [1, -1, 0])
    total, _ = sum_of_factors([full, full], [{"factor": kept[0]["factor"]}, {}], initial)
    assert total == pytest.approx(2 * full)


def test_columns_are_made_orthogonal_one_after_the_other() -> None:
    assert orthogonalise(array([3, 1], [4, 1])) == pytest.approx(array([0.6, 0.8], [0.8, -0.6]))
    assert orthogonalise(array([1, 1, 0], [0, 1e-7, 1])).tolist() == [[1, 0, 0], [0, 0, 1]], (
        "too short beside the first"
    )
    assert not orthogonalise(np.zeros((3, 2))).any()


def gradients(step: int, ranks: int) -> list[Arrays]:
    stream = np.random.default_rng(step)
    shapes = {"layer/kernel": (6, 5), "layer/bias": (5,)}
    return [{name: stream.normal(size=shape) for name, shape in shapes.items()} for _ in range(ranks)]


@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("techniques", [Techniques(compress="int8"), Techniques(compress="powersgd", compress_rank=2)])
def test_what_is_left_out_comes_later(ranks: int, techniques: Techniques) -> None:
    """Everything that was sent and everything that is kept add up to the sum of all gradients."""
    run = parse(RunConfig("torch", "ddp", "synthetic-mlp", 2, techniques=techniques))
    sent, wanted, kept = 0.0, 0.0, ()
    for step in range(20):
        parts = gradients(step, ranks)
        total, kept = exchange(run, parts, kept)
        sent, wanted = sent + total["layer/kernel"], wanted + sum(part["layer/kernel"] for part in parts)
    left = sum(held["residual/layer/kernel"] for held in kept) + kept[0].get("sum_residual/layer/kernel", 0.0)
    assert np.abs(left).max() > 1e-3
    assert sent + left == pytest.approx(wanted, abs=1e-12)


def test_powersgd_begins_after_as_many_steps_as_asked_for() -> None:
    config = RunConfig("numpy", "oracle", "synthetic-mlp", dtype="float64")
    techniques = Techniques(compress="powersgd", compress_warmup_steps=3)
    plain = TrainingProgram(parse(config))
    program = TrainingProgram(parse(dataclasses.replace(config, devices=2, techniques=techniques)))
    split = load(program.run.workload.data)
    for batch in itertools.islice(batches(split.train_inputs, split.train_targets, 96, seed=0), 5):
        assert bool(program.local) == (batch.step > 3), "the fourth step leaves residuals"
        program.step(batch)
        plain.step(batch)
    compressed, whole = program.losses(), plain.losses()
    assert compressed[:4] == pytest.approx(whole[:4], rel=1e-12)
    assert abs(compressed[4] / whole[4] - 1) > 1e-6, "the first loss after a compressed step"
