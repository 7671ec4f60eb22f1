"""The oracle's derivatives against central finite differences, on shapes that hypothesis picks.

Per parameter one directional derivative: with u a unit vector, half along the claimed gradient (so that its size shows)
and half at random (so that its direction does), (L(w + hu) - L(w - hu)) / 2h should be <gradient, u>.

It is off by rounding and by truncation. A loss L < 10 is right to about 30 operations in a row, each to 1.1e-16: 4e-14
at most, hence ROUNDING / h in the quotient. Truncation, h^2 / 6 times the third derivative, falls as h does: at h = 1e-5
it is below the rounding for a third derivative below 240, but a norm over nearly equal numbers or large logits bend
more. So h shrinks tenfold, down to 1e-7, until both sides agree within ROUNDING / h; no h is allowed more than its
rounding, 4e-7 at the last. That is a thousandth or less of what is compared, as the tests with a spoilt gradient show.

No model has a kink (no ReLU, no maximum), so that there is a derivative at every point that hypothesis picks.
"""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from samestep.common.reference.models.losses import LOSSES, binary_cross_entropy, cross_entropy, mean_squared_error
from samestep.common.workload.models.cnn import CnnSpec
from samestep.common.workload.models.mlp import MlpSpec
from samestep.common.workload.models.ranker import RankerSpec
from samestep.common.workload.models.transformer import STYLES, TransformerSpec

ROUNDING = 4e-14
STEPS = (1e-5, 1e-6, 1e-7)

some = settings(derandomize=True, deadline=None, max_examples=30)
size = st.integers(1, 6)
losses = st.sampled_from(["cross_entropy", "mean_squared_error"])
mlps = st.builds(MlpSpec, features=size, width=size, layers=st.integers(1, 4), outputs=st.integers(2, 5), loss=losses)
images = st.tuples(st.sampled_from([4, 8]), st.sampled_from([4, 8]), st.integers(1, 2))
cnns = st.builds(CnnSpec, image=images, filters=st.integers(1, 3), hidden=size, outputs=st.integers(2, 5), loss=losses)
transformers = st.builds(
    lambda heads, per_head, **sizes: TransformerSpec(heads=heads, width=heads * per_head, **sizes),
    heads=st.integers(1, 3),
    per_head=st.sampled_from([4, 6]),  # a norm over two or three near-equal numbers bends more than h can follow
    style=st.sampled_from(STYLES),
    key_heads=st.integers(0, 1),
    layers=st.integers(1, 2),
    context=st.integers(1, 4),
    vocabulary=st.integers(2, 7),
    tied=st.booleans(),
)
rankers = st.builds(
    RankerSpec,
    cardinalities=st.lists(size, min_size=1, max_size=3).map(tuple),
    hash_buckets=st.integers(0, 5),
    embedding=st.integers(1, 3),
    hidden=st.integers(2, 6),
)
SMALL = [
    MlpSpec(features=3, width=5, layers=3, outputs=3),
    CnnSpec(image=(4, 8, 2), filters=2, hidden=4, outputs=3),
    TransformerSpec(layers=2, heads=2, width=8, context=3, vocabulary=5),
    TransformerSpec(layers=1, heads=2, width=8, context=3, vocabulary=5, tied=True),
    TransformerSpec(layers=1, heads=4, key_heads=2, width=16, context=3, vocabulary=5, style="llama"),
    TransformerSpec(layers=1, heads=2, width=8, context=3, vocabulary=5, style="llama", experts=3, balance=0.0),
    RankerSpec((3, 2), 4, embedding=2, hidden=4),
    MlpSpec(features=3, width=5, layers=3, outputs=2, loss="mean_squared_error"),
]


def mean_loss(program, params, batch):
    inputs, targets = batch.rows()
    return program.loss(program.model.forward(params, inputs)[0], targets)[0] / targets.size


def miss(program, batch, name, direction, claimed):
    """By how many times its rounding the best difference misses a claimed derivative."""
    best = np.inf
    for step in STEPS:
        below, above = (
            mean_loss(program, program.params | {name: program.params[name] + sign * step * direction}, batch)
            for sign in (-1, 1)
        )
        best = min(best, abs((above - below) / (2 * step) - claimed) / (ROUNDING / step))
        if best <= 1:
            break
    return best


def unit(array):
    length = np.linalg.norm(array)
    return array / length if length else array


def misses(program, batch, gradients, stream):
    """The same for every parameter, along a direction of its own."""
    found = {}
    for name, gradient in gradients.items():
        random = unit(stream.normal(size=gradient.shape))
        random = -random if (random * gradient).sum() < 0 else random  # the halves must not cancel
        direction = unit(unit(gradient) + random)
        found[name] = miss(program, batch, name, direction, float((gradient * direction).sum()))
    return found


@pytest.fixture(scope="session")
def shaken(training, oracle_config):
    """A program whose parameters are all of order 1 and none zero, with a batch and a stream for directions."""

    def start(model, seed):
        stream = np.random.default_rng(seed)
        program, (batch,) = training(model, dataclasses.replace(oracle_config, seed=seed), batch_size=4)
        program.params = {name: value + 0.3 * stream.normal(size=value.shape) for name, value in program.params.items()}
        return program, batch, stream

    return start


def check(shaken, model, seed):
    program, batch, stream = shaken(model, seed)
    loss, gradients = program.gradients(batch)
    assert loss == pytest.approx(mean_loss(program, program.params, batch), rel=1e-15)  # one more division at most
    assert {name: value.shape for name, value in gradients.items()} == {
        name: param.shape for name, param in model.params().items()
    }
    found = misses(program, batch, gradients, stream)
    assert max(found.values()) <= 1, found


@some
@given(mlps, st.integers(0, 1000))
def test_the_mlp_s_gradients_are_its_finite_differences(shaken, model, seed):
    check(shaken, model, seed)


@some
@given(cnns, st.integers(0, 1000))
def test_the_cnn_s_gradients_are_its_finite_differences(shaken, model, seed):
    check(shaken, model, seed)


@some
@given(transformers, st.integers(0, 1000))
def test_the_transformer_s_gradients_are_its_finite_differences(shaken, model, seed):
    check(shaken, model, seed)


@some
@given(rankers, st.integers(0, 1000))
def test_the_ranker_s_gradients_are_its_finite_differences(shaken, model, seed):
    check(shaken, model, seed)


@pytest.mark.parametrize("model", SMALL, ids=lambda model: f"{model.name}-{model.loss}")
def test_a_gradient_off_by_a_hundredth_would_be_noticed_in_every_parameter(shaken, model):
    program, batch, stream = shaken(model, 1)
    gradients = {name: 1.01 * value for name, value in program.gradients(batch)[1].items()}
    found = misses(program, batch, gradients, stream)
    assert min(found.values()) > 10, found


@pytest.mark.parametrize("model", SMALL, ids=lambda model: f"{model.name}-{model.loss}")
def test_one_wrong_element_would_be_noticed(shaken, model):
    program, batch, stream = shaken(model, 1)
    gradients = program.gradients(batch)[1]
    for value in gradients.values():
        value.flat[0] += 1e-2
    found = misses(program, batch, gradients, stream)
    assert min(found.values()) > 10, found


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_is_the_sum_over_its_targets(name):
    stream = np.random.default_rng(0)
    logits, targets = {
        "cross_entropy": (stream.normal(size=(5, 3)), stream.integers(0, 3, size=5)),
        "binary_cross_entropy": (stream.normal(size=5), stream.integers(0, 2, size=5)),
        "mean_squared_error": (stream.normal(size=(5, 3)), stream.normal(size=(5, 3))),
    }[name]
    single = [LOSSES[name](logits[i : i + 1], targets[i : i + 1]) for i in range(5)]
    loss, gradient = LOSSES[name](logits, targets)
    assert loss == pytest.approx(sum(each for each, _ in single), rel=2e-15)  # five roundings, in another order
    np.testing.assert_array_equal(gradient, np.concatenate([each for _, each in single]))


def test_cross_entropy_of_equal_logits_is_the_logarithm_of_the_classes():
    loss, gradient = cross_entropy(np.zeros((1, 8)), np.array([3]))
    assert loss == pytest.approx(np.log(8), rel=1e-15)
    np.testing.assert_allclose(gradient[0], [0.125] * 3 + [-0.875] + [0.125] * 4, rtol=0, atol=0)


def test_cross_entropy_stays_finite_at_any_logits():
    loss, gradient = cross_entropy(np.array([[1e4, -1e4]]), np.array([1]))
    assert loss == 2e4
    assert gradient.tolist() == [[1, -1]]


def test_binary_cross_entropy_is_cross_entropy_against_a_logit_of_zero():
    logits, targets = np.array([-3.0, 0.5, 20.0]), np.array([1, 0, 1])
    loss, gradient = binary_cross_entropy(logits, targets)
    expected, two = cross_entropy(np.stack([np.zeros(3), logits], axis=1), targets)
    assert loss == pytest.approx(expected, rel=1e-15)
    np.testing.assert_allclose(gradient, two[:, 1], rtol=1e-15, atol=2.3e-16)  # a difference of numbers of order 1


def test_mean_squared_error_is_the_squared_length_of_the_error_and_its_gradient_twice_the_error():
    loss, gradient = mean_squared_error(np.array([[1.0, 2.0], [0.0, -1.0]]), np.array([[0.0, 0.0], [3.0, -1.0]]))
    assert loss == 1 + 4 + 9
    assert gradient.tolist() == [[2, 4], [-6, 0]]


def test_binary_cross_entropy_stays_finite_and_silent_at_any_logits():
    loss, gradient = binary_cross_entropy(np.array([-1e4, 1e4]), np.array([1, 0]))
    assert loss == 2e4
    assert gradient.tolist() == [-1, 1]
