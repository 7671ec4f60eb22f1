import math

import numpy as np
import pytest

from samestep.common.judging.metrics import METRICS, accuracy, auc, bits_per_token, root_mean_squared_error


def test_accuracy_counts_the_largest_logits():
    logits = np.array([[0.0, 2.0, 1.0], [3.0, 2.0, 1.0], [0.0, -1.0, 5.0], [1.0, 0.0, 0.0]])
    assert accuracy(logits, np.array([1, 0, 1, 0])) == 0.75


def test_even_odds_among_256_bytes_cost_eight_bits_each():
    assert bits_per_token(np.zeros((3, 5, 256)), np.arange(15).reshape(3, 5)) == pytest.approx(8.0, rel=1e-14)


def test_bits_follow_the_chance_given_to_what_came():
    chances = np.array([[[0.5, 0.25, 0.25], [0.25, 0.5, 0.25]]])
    assert bits_per_token(np.log(chances), np.array([[0, 0]])) == pytest.approx((1 + 2) / 2, rel=1e-14)


def test_bits_of_large_float32_logits_do_not_overflow():
    logits = np.array([[[1e4, 0.0], [0.0, 1e4]]], np.float32)
    assert bits_per_token(logits, np.array([[0, 0]])) == pytest.approx(1e4 / math.log(2) / 2, rel=1e-12)


def test_auc_is_the_share_of_pairs_in_the_right_order():
    stream = np.random.default_rng(0)
    logits = np.round(stream.normal(size=60), 1)  # with ties
    targets = stream.integers(0, 2, 60)
    pairs = [(p > n) + 0.5 * (p == n) for p in logits[targets == 1] for n in logits[targets == 0]]
    assert auc(logits, targets) == pytest.approx(np.mean(pairs), rel=1e-14)


@pytest.mark.parametrize(("logits", "value"), [([0.0, 1.0], 1.0), ([1.0, 0.0], 0.0), ([1.0, 1.0], 0.5)])
def test_auc_of_one_pair(logits, value):
    assert auc(np.array(logits), np.array([0, 1])) == value


@pytest.mark.parametrize("target", [0, 1])
def test_auc_of_one_class_is_not_a_number(target):
    assert math.isnan(auc(np.array([0.0, 1.0]), np.full(2, target)))


def test_the_root_mean_squared_error_is_over_examples_and_outputs():
    outputs, targets = np.array([[3.0, 1.0], [0.0, 1.0]]), np.array([[0.0, 1.0], [0.0, -4.0]])
    assert root_mean_squared_error(outputs, targets) == pytest.approx(math.sqrt((9 + 25) / 4), rel=1e-15)


def test_the_root_mean_squared_error_of_large_float32_numbers_does_not_overflow():
    assert root_mean_squared_error(np.array([[3e30]], np.float32), np.array([[0.0]], np.float32)) == pytest.approx(3e30)


def test_every_metric_says_which_way_is_better():
    directions = {name: metric.direction for name, metric in METRICS.items()}
    assert directions == {
        "accuracy": "higher",
        "bits_per_byte": "lower",
        "bits_per_token": "lower",
        "auc": "higher",
        "root_mean_squared_error": "lower",
    }
