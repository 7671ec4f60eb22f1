"""The layers' forward passes against plainer statements of the same thing; their derivatives are in test_gradients."""

import dataclasses
import math

import numpy as np
import pytest
from scipy.signal import correlate2d

from samestep.common.errors import ConfigError
from samestep.common.reference.models import build_model
from samestep.common.reference.models.images import AveragePool, Convolution, MaxPool
from samestep.common.reference.models.layers import Gelu, Norm, Relu, RootNorm, scatter_rows
from samestep.common.reference.models.transformer import Attention, GatedMlp
from samestep.common.reference.mutants import Context
from samestep.common.reference.silent_positions import local_positions
from samestep.common.reference.step_context import StepContext
from samestep.common.workload.initial import init
from samestep.common.workload.models.transformer import STYLES, TransformerSpec


@pytest.fixture
def stream():
    return np.random.default_rng(0)


def test_a_convolution_correlates_every_channel_with_zeros_around(stream):
    x, kernel, bias = stream.normal(size=(2, 4, 6, 3)), stream.normal(size=(3, 3, 3, 5)), stream.normal(size=5)
    y, _ = Convolution("c").forward({"c/kernel": kernel, "c/bias": bias}, x)
    for image, out in np.ndindex(2, 5):
        expected = bias[out] + sum(correlate2d(x[image, :, :, i], kernel[:, :, i, out], "same") for i in range(3))
        np.testing.assert_allclose(y[image, :, :, out], expected, rtol=0, atol=1e-14)  # 27 terms of order 1, reordered


def test_pooling_takes_the_mean_of_each_window(stream):
    x = stream.normal(size=(2, 4, 6, 3))
    y, _ = AveragePool().forward({}, x)
    assert y.shape == (2, 2, 3, 3)
    for image, row, column, channel in np.ndindex(y.shape):
        window = x[image, 2 * row : 2 * row + 2, 2 * column : 2 * column + 2, channel]
        assert y[image, row, column, channel] == pytest.approx(window.mean(), abs=1e-15)  # four terms, maybe reordered


def test_a_norm_leaves_mean_zero_and_variance_one_but_for_its_epsilon(stream):
    x = 3 + 2 * stream.normal(size=(4, 50))
    y, _ = Norm("n").forward({"n/scale": np.ones(50), "n/bias": np.zeros(50)}, x)
    variance = x.var(axis=-1)  # the biased one
    np.testing.assert_allclose(y.mean(axis=-1), 0, atol=1e-15)  # 50 numbers of order 1, each off by an ulp or two
    np.testing.assert_allclose(y.var(axis=-1), variance / (variance + 1e-5), rtol=1e-14)
    shifted, _ = Norm("n").forward({"n/scale": np.full(50, 3.0), "n/bias": np.full(50, 7.0)}, x)
    np.testing.assert_allclose(shifted, 3 * y + 7, rtol=0, atol=1e-15 * 16)  # rounded at values up to 16


def test_gelu_is_x_times_the_exact_normal_distribution():
    x = np.linspace(-4, 4, 81)
    expected = [each * 0.5 * math.erfc(-each / math.sqrt(2)) for each in x.tolist()]
    # Near -4, 1 + erf loses the leading digits: an absolute error of an ulp of 1, times x.
    np.testing.assert_allclose(Gelu().forward({}, x)[0], expected, rtol=1e-15, atol=4 * 1.2e-16)


def test_attention_is_a_mixture_of_the_values_seen_so_far(stream):
    heads, width, tokens = 2, 6, 4
    params = {f"a/{part}/kernel": stream.normal(size=(width, width)) for part in ("query", "key", "value", "output")}
    params |= {f"a/{part}/bias": stream.normal(size=width) for part in ("query", "value", "output")}
    x = stream.normal(size=(1, tokens, width))
    y, _ = Attention("a", TransformerSpec(heads=heads, width=width)).forward(params, x)
    q = x[0] @ params["a/query/kernel"] + params["a/query/bias"]
    k = x[0] @ params["a/key/kernel"]
    v = x[0] @ params["a/value/kernel"] + params["a/value/bias"]
    for t in range(tokens):
        mixed = []
        for part in (slice(0, 3), slice(3, 6)):
            weights = np.exp(k[: t + 1, part] @ q[t, part] / math.sqrt(3))
            mixed += list(weights @ v[: t + 1, part] / weights.sum())
        expected = np.array(mixed) @ params["a/output/kernel"] + params["a/output/bias"]
        np.testing.assert_allclose(y[0, t], expected, rtol=0, atol=1e-13)  # scores up to 20 amplify their 1e-15


LLAMA = TransformerSpec(layers=1, heads=4, key_heads=2, width=16, context=6, vocabulary=5, style="llama")


def test_rotary_scores_depend_on_the_distance_of_two_positions_alone(stream):
    """As cos and sin of the original paper have it: pair i turns by position x base^(-2 i / K)."""
    attention = Attention("a", LLAMA)
    q, k = stream.normal(size=(2, 1, 1, 1, 4))
    turned = []
    for place in (3, 5, 103, 105):
        attention.places = lambda tokens, place=place: np.array([place])
        turned.append((attention._turn(q, 1), attention._turn(k, 1)))
    near, far = ((turned[i][0] * turned[i + 1][1]).sum() for i in (0, 2))
    np.testing.assert_allclose(near, far, rtol=0, atol=1e-13)  # angles of 105 have an ulp of 1.4e-14
    angles = 5 * np.array([1.0, 10_000 ** (-2 / 4)])
    expected = [k[..., i] * np.cos(angles[i]) - k[..., i + 2] * np.sin(angles[i]) for i in (0, 1)]
    np.testing.assert_allclose(turned[1][1][..., :2], np.stack(expected, -1), rtol=0, atol=1e-15)


def test_a_root_norm_leaves_a_mean_square_of_one_but_for_its_epsilon(stream):
    x = 3 + 2 * stream.normal(size=(4, 50))
    y, _ = RootNorm("n").forward({"n/scale": np.full(50, 3.0)}, x)
    square = (x * x).mean(axis=-1)
    np.testing.assert_allclose((y * y).mean(axis=-1), 9 * square / (square + 1e-5), rtol=1e-14)


def test_a_gated_mlp_multiplies_two_layers(stream):
    params = {f"m/{name}/kernel": stream.normal(size=(4, 4)) for name in ("up", "gate", "down")}
    x = stream.normal(size=(3, 4))
    gate = x @ params["m/gate/kernel"]
    expected = (gate / (1 + np.exp(-gate)) * (x @ params["m/up/kernel"])) @ params["m/down/kernel"]
    np.testing.assert_allclose(GatedMlp("m").forward(params, x)[0], expected, rtol=1e-13)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"heads": 4, "key_heads": 3}, "4 heads do not divide among 3 heads of keys"),
        ({"heads": 4, "width": 12, "style": "llama"}, "rotary positions turn pairs, and 12 / 4 is odd"),
        ({"activation": "relu", "style": "llama"}, "an activation of its own"),
    ],
)
def test_what_no_transformer_can_be_is_refused(fields, reason):
    with pytest.raises(ConfigError, match=reason):
        TransformerSpec(**fields)


@pytest.mark.parametrize("style", STYLES)
def test_positions_numbered_anew_in_each_part_are_another_model(style, training, oracle_config):
    program, (batch,) = training(dataclasses.replace(LLAMA, style=style), oracle_config, batch_size=4)
    right, _ = program.gradients(batch)
    assert local_positions(program, Context(devices=2))
    wrong, _ = program.gradients(batch)
    assert abs(wrong - right) > 1e-6


def test_no_token_sees_a_later_one():
    spec = TransformerSpec(layers=2, heads=2, width=8, context=6, vocabulary=5)
    model, params = build_model(spec, StepContext()), init(spec, 0)
    ids = np.array([[0, 1, 2, 3, 4, 0]])
    changed = ids.copy()
    changed[0, 3] = 1
    first, second = (model.forward(params, each)[0][0] for each in (ids, changed))
    np.testing.assert_array_equal(first[:3], second[:3])
    assert (first[3:] != second[3:]).any(axis=-1).all()


def test_rows_that_are_looked_up_again_add_up(stream):
    ids, dy = np.array([4, 0, 4, 2, 4]), stream.normal(size=(5, 3))
    expected = np.zeros((6, 3))
    np.add.at(expected, ids, dy)
    np.testing.assert_allclose(scatter_rows(ids, dy, 6), expected, rtol=0, atol=1e-15)  # three terms, maybe reordered


def test_of_equal_elements_of_a_window_the_first_is_the_largest():
    x = np.array([[1.0, 3.0, 0.0, 0.0], [3.0, 2.0, 0.0, 0.0]])[None, :, :, None]
    pool, gradients = MaxPool(), {}
    y, saved = pool.forward({}, x)
    np.testing.assert_array_equal(y[0, 0, :, 0], [3.0, 0.0])
    dx = pool.backward({}, saved, np.array([5.0, 7.0]).reshape(1, 1, 2, 1), gradients)
    np.testing.assert_array_equal(dx[0, :, :, 0], [[0.0, 5.0, 7.0, 0.0], [0.0, 0.0, 0.0, 0.0]])


def test_a_relu_passes_no_gradient_on_at_its_kink():
    x = np.array([-1.0, 0.0, 2.0])
    y, saved = Relu().forward({}, x)
    np.testing.assert_array_equal(y, [0.0, 0.0, 2.0])
    np.testing.assert_array_equal(Relu().backward({}, saved, np.full(3, 3.0), {}), [0.0, 0.0, 3.0])
