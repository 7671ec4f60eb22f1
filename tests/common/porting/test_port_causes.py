"""Causes are recognized from arrays alone: what came out is computed here by the same formulas, and by noise."""

import dataclasses

import numpy as np
import pytest

from samestep.common.porting.alignment import Aligned
from samestep.common.porting.array_layouts import apart, squeezed
from samestep.common.porting.case import differ
from samestep.common.porting.model_trace import LayerCall
from samestep.common.porting.training import update_differences
from samestep.common.porting.training.loss_differences import explain_loss
from samestep.common.porting.ways import formulas
from samestep.common.porting.ways.between import identify_between
from samestep.common.porting.ways.identify import identify_both
from samestep.common.porting.ways.layers import WAYS
from samestep.common.porting.words import name_sides, say, spell_deviation

RNG = np.random.default_rng(0)
NONE = np.zeros(0), np.zeros(0)
"""What is known of the losses of single targets."""
X = RNG.normal(size=(4, 8, 8, 3))
KERNEL = RNG.normal(size=(3, 3, 3, 5))


def layer(family: str, x: np.ndarray, one: np.ndarray, other: np.ndarray, **params: np.ndarray) -> Aligned:
    calls = [
        LayerCall(name=name, kind=family, settings=settings, inputs=(x,), output=output)
        for name, settings, output in (
            ("a", {"stride": [2, 2], "padding": [1, 1]}, one),
            ("b", {"strides": [2, 2]}, other),
        )
    ]
    return Aligned(calls[0], calls[1], family, (x, x), (one, other), params=(params, params))


def cause(found: Aligned) -> str:
    both = identify_both(found, WAYS[found.family])
    return "" if both is None else named(say(*both))


def named(text: str) -> str:
    return name_sides(text, ("torch", "tf"))


def convolved(pads: formulas.Pads) -> np.ndarray:
    return formulas.convolve(X, KERNEL, (2, 2), pads, (1, 1))


def test_padding() -> None:
    found = layer("convolution", X, convolved([(1, 1)] * 2), convolved([(0, 1)] * 2), kernel=KERNEL)
    assert cause(found) == "TensorFlow's SAME pads (0, 1), torch pads (1, 1)"


@pytest.mark.parametrize("axes", [(1, 2), (1, 2, 3)])
def test_the_epsilon_of_a_norm_over_space_is_named(axes: tuple[int, ...]) -> None:
    scale = RNG.normal(size=(*X.shape[1:3], *X.shape[3:] * (len(axes) > 2)))
    centred = X - X.mean(axes, keepdims=True)
    one, other = (
        centred / np.sqrt(X.var(axes, keepdims=True) + epsilon) * scale.reshape(*scale.shape, *[1] * (3 - len(axes)))
        for epsilon in (1e-5, 1e-3)
    )
    found = layer("normalization", X, one, other)
    ours = np.moveaxis(scale, -1, 0) if scale.ndim > 2 else scale
    found = dataclasses.replace(found, params=({"scale": ours}, {"scale": scale}))
    assert cause(found) == "torch's epsilon is 1e-05, TensorFlow's 0.001"


def test_the_epsilon_of_a_norm_over_the_positions_of_a_signal_is_named() -> None:
    x = np.random.default_rng(0).normal(size=(4, 9, 6))
    scale, centred = np.linspace(1, 2, 9), x - x.mean(1, keepdims=True)
    one, other = (centred / np.sqrt(x.var(1, keepdims=True) + epsilon) * scale[:, None] for epsilon in (1e-5, 1e-3))
    found = dataclasses.replace(layer("normalization", x, one, other), params=({"scale": scale}, {"scale": scale}))
    assert cause(found) == "torch's epsilon is 1e-05, TensorFlow's 0.001"


@pytest.mark.parametrize("family", ["linear", "activation", "normalization"])
def test_noise_has_no_cause(family: str) -> None:
    x, square = RNG.normal(size=(4, 6)), RNG.normal(size=(6, 6))
    one = {"linear": x @ square, "activation": np.tanh(x), "normalization": x}[family]
    assert cause(layer(family, x, one, RNG.normal(size=(4, 6)), kernel=square)) == ""
    assert cause(layer(family, x, one, one, kernel=square)) == ""


def test_a_cause_needs_both_sides() -> None:
    x, square = RNG.normal(size=(4, 6)), RNG.normal(size=(6, 6))
    assert cause(layer("linear", x, x @ square, x @ square.T, kernel=square)) == (
        "the square kernel is transposed in TensorFlow"
    )
    assert cause(layer("linear", x, x @ square + 0.1, x @ square.T, kernel=square)) == ""


def test_a_constant_in_float32_is_no_cause() -> None:
    x = RNG.normal(size=(4, 6))
    exact = formulas.ACTIVATIONS["exact gelu"](x)
    assert cause(layer("activation", x, exact, exact * (1 + 4e-10))) == ""


def test_what_stands_between_layers() -> None:
    x = RNG.normal(size=(4, 6))
    before = [layer("linear", x, x, x)]
    both = identify_between(before, (np.maximum(x, 0), x))
    assert both is not None and named(say(*both)) == "the activation (relu) is left out in TensorFlow"
    assert identify_between(before, (np.maximum(x, 0), RNG.normal(size=(4, 6)))) is None


def test_where_arrays_differ() -> None:
    other = X.copy()
    other[:, 0] += 1
    assert differ("outputs", (X, other)).endswith(" % along the border")
    other[:, 4, 4] += 1
    assert differ("outputs", (X, other)).endswith(" %")
    assert differ("outputs", (X, X[:, 1:])) == "outputs are shaped [4, 8, 8, 3] and [4, 7, 8, 3]"


def test_arrays_that_cannot_be_compared_are_infinitely_far_apart() -> None:
    assert apart(X, X) == 0.0
    assert apart(X, X[:1]) == np.inf
    assert apart(X, X * np.nan) == np.inf
    one, other = squeezed(np.ones((4, 1, 1, 3)), np.ones((4, 3)))
    assert one.shape == other.shape


@pytest.mark.parametrize(
    ("ratio", "said"),
    [
        *(
            (0.12, "12 %"),
            (0.997, "100 %"),
            (1.47, "147 %"),
            (13.1, "13.1 times"),
            (0.0234, "2.3 %"),
            (0.00234, "0.23 %"),
        ),
        *((3.4e-6, "3.4e-06"), (np.nan, "not finite")),
    ],
)
def test_sizes_as_people_say_them(ratio: float, said: str) -> None:
    assert spell_deviation(ratio) == said


def test_how_a_loss_is_averaged() -> None:
    outputs = np.zeros((16, 12, 31))

    def said(one: float, other: float) -> str:
        return named(explain_loss((one, other), NONE, outputs, np.zeros(()), {}, 1e-12))

    assert said(1.0, 12.0).startswith("torch takes the mean over all targets, TensorFlow over")
    assert said(16.0, 1.0) == "TensorFlow takes the mean over the batch, torch the sum: 16 times as much"
    assert said(1.0, 1.5) == "TensorFlow's is 1.5 times torch's"


def test_what_keras_adds_to_the_loss_is_named() -> None:

    def said(one: float, other: float, added: dict[str, float]) -> str:
        return named(explain_loss((one, other), NONE, np.zeros((16, 3)), np.zeros(()), added, 1e-12))

    assert said(1.0, 3.0, added={"L2 of 0.5 on `fc/kernel`": 2.0, "what `a` adds": 0.0}) == (
        "L2 of 0.5 on `fc/kernel` is in the loss of Keras only"
    )
    assert said(2.0, 4.0, added={"A": 0.5, "B": 0.5}) == (
        "A and B are in the loss of Keras only; without that, TensorFlow's is 1.5 times torch's"
    )
    assert (
        said(1.0, 1.5, added={"A": 2.0}) == "TensorFlow's is 1.5 times torch's"
    )  # torch's own loss has it, most likely


@pytest.mark.parametrize("epsilon", [1e-8, 1e-5])
def test_the_epsilon_of_adam_is_read_from_its_first_step(epsilon: float) -> None:
    gradient = RNG.normal(size=50) / 100
    found = update_differences._epsilon(gradient, -1e-3 * gradient / (np.abs(gradient) + epsilon))
    assert found == pytest.approx(epsilon, rel=1e-2, abs=1e-10)
    assert update_differences._epsilon(gradient, -1e-3 * gradient) is None  # SGD has none


def test_what_stands_inside_a_separable_convolution() -> None:
    first, second, bias = RNG.normal(size=(3, 3, 3, 2)), RNG.normal(size=(1, 1, 6, 5)), RNG.normal(size=5)
    alone = first.reshape(3, 3, 1, 6)

    def made(pads: formulas.Pads, inner: str = "none") -> np.ndarray:
        y = formulas.convolve(X, alone, (2, 2), pads, (1, 1), groups=3)
        return formulas.ACTIVATIONS[inner](y) @ second[0, 0] + bias

    def said(one: np.ndarray, other: np.ndarray) -> str:
        found = layer("convolution", X, one, other, **{"depthwise/kernel": first, "kernel": second, "bias": bias})
        return cause(found)

    even, same = [(1, 1)] * 2, [(0, 1)] * 2
    assert said(made(even), made(same)) == "TensorFlow's SAME pads (0, 1), torch pads (1, 1)"
    assert said(made(same, "relu"), made(same)) == (
        "between its two parts, the activation (relu) is left out in TensorFlow"
    )
    assert said(made(same), made(same) - bias) == "the bias is left out in TensorFlow"


@pytest.mark.parametrize(
    ("counts", "said"), [((0, 0, 0), "hides no keys"), ((0, 1, 0), "hides the first keys of some")]
)
def test_keys_that_an_attention_hides(counts: tuple[int, ...], said: str) -> None:
    x, packed, out = RNG.normal(size=(3, 5, 8)), RNG.normal(size=(8, 24)), RNG.normal(size=(8, 8))
    query, key, value = (each.reshape(3, 5, 2, 4) for each in np.split(x @ packed, 3, axis=-1))

    def made(shown: list[slice]) -> np.ndarray:
        parts = [
            formulas.attend(query[[at]], key[[at]][:, keys], value[[at]][:, keys], 0.5, None)
            for at, keys in enumerate(shown)
        ]
        return np.concatenate(parts).reshape(3, 5, 8) @ out

    last = made([slice(0, 5), slice(0, 3), slice(0, 4)])
    other = made([slice(count, None) for count in counts])
    calls = [
        LayerCall(name="a", kind="attention", settings={"num_heads": 2}, inputs=(x,), output=each)
        for each in (last, other)
    ]
    params = {"kernel": packed, "out_proj/kernel": out}
    found = Aligned(calls[0], calls[1], "attention", (x, x), (last, other), params=(params, params))
    with np.errstate(all="ignore"):  # as the judge has it: causal masks over another axis hide all
        told = cause(found)
    assert told.startswith(f"torch hides the last keys of some examples, TensorFlow {said}")
