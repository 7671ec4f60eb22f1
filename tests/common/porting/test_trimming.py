"""What one side of a layer returns beyond the other's result is no difference by itself; and a mask hides by any large number."""

import numpy as np
import pytest

from samestep.common.porting.array_layouts import apart_but_hidden, without_border
from samestep.common.porting.functions import same
from samestep.common.porting.model_trace import LayerCall
from samestep.common.porting.trimming import find_trim, merged
from samestep.common.porting.ways.fitted_activations import measured

X = np.random.default_rng(0).normal(size=(4, 6, 8))


@pytest.mark.parametrize(
    ("family", "part"),
    [
        ("recurrent", X[:, -1]),
        ("recurrent", np.concatenate([X[:, -1, :4], X[:, 0, 4:]], -1)),
        ("other", X[:, 0]),
        ("convolution", X[:, 1:5]),
    ],
)
def test_the_larger_result_is_cut_to_the_smaller(family: str, part: np.ndarray) -> None:
    for both in ((X, part), (part, X)):
        one, other = find_trim(family, *both)(both)
        assert np.array_equal(one, part) and np.array_equal(other, part)


def test_what_is_no_part_is_not_cut() -> None:
    both = X, X[:, 1:5] + 1
    assert find_trim("convolution", *both)(both) is both
    one, _ = find_trim("recurrent", X, X[:, -1] + 1)((X, X[:, -1] + 1))
    assert np.array_equal(one, X[:, -1])  # a wrong layer is compared where both have a result


def call(name: str, output: np.ndarray) -> LayerCall:
    return LayerCall(name=name, kind="GRU", settings={}, inputs=(), output=output)


@pytest.mark.parametrize("part", [X[..., :4] + X[..., 4:], (X[:, -1, :4] + X[:, 0, 4:]) / 2])
def test_two_directions_are_merged_as_the_model_or_else_the_other_side_does(part: np.ndarray) -> None:
    both = call("rnn", X)
    assert np.array_equal(merged([both], 0, call("other", part)).output, part)
    assert np.array_equal(merged([both, call("own", part)], 0, call("other", part / 2)).output, part)
    assert merged([both], 0, call("other", part + 1)) is both


def test_a_mask_hides_by_any_large_number_and_what_it_leaves_is_compared() -> None:
    scores, mask = X[:, :, :6], np.triu(np.ones((6, 6), bool), 1)
    one, other = scores + mask * -1e9, np.where(mask, -1e4, scores)
    assert same(one, other) and not same(one, np.where(mask, -1e4, scores + 1e-3))
    assert not np.isfinite(apart_but_hidden(one, np.where(mask.T, -1e4, scores)))


def test_padding_is_no_part_of_an_image() -> None:
    image = np.abs(X.reshape(4, 6, 4, 2)) + 1
    assert np.array_equal(without_border(np.pad(image, [(0, 0), (1, 2), (0, 1), (0, 0)])), image)


@pytest.mark.parametrize(
    ("made", "name"),
    [
        (np.where(X > 0, X, 0.15 * X), "leaky relu of slope 0.15"),
        (np.where(X > 0, X, 0.5 * np.expm1(X)), "elu of alpha 0.5"),
        (np.clip(X, 0, 0.75), "relu up to 0.75"),
        (np.exp(3 * X) / np.exp(3 * X).sum(-1, keepdims=True), "softmax of 3 times that"),
        (1 / (1 + np.exp(-2 * X)), "sigmoid of 2 times that"),
    ],
)
def test_the_number_of_an_activation_is_measured(made: np.ndarray, name: str) -> None:
    assert name in [found for found, function in measured(X, made) if np.allclose(function(X), made, rtol=0, atol=1e-9)]
