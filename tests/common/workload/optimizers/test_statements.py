"""The updates against the formulas of their files, restated number by number in Python floats."""

import dataclasses
import math

import numpy as np
import pytest

from samestep.common.workload.initial import empty_slots
from samestep.common.workload.models.spec import Param
from samestep.common.workload.optimizers.adafactor import Adafactor
from samestep.common.workload.optimizers.adamw import AdamW
from samestep.common.workload.optimizers.lion import Lion
from samestep.common.workload.optimizers.muon import Muon
from samestep.common.workload.optimizers.sgd import Sgd
from samestep.common.workload.optimizers.table import OPTIMIZERS, optimizer_named

SGD = Sgd(0.1)
ADAMW = AdamW(0.01)
LION = Lion(0.01)
STEPS = 30
SCALES = np.array([1e-9, 1e-8, 1e-4, 1.0, 1.0, 1e4])
"""Of the gradients; the smallest are where it shows whether epsilon stands inside the root or outside."""


def sgd_by_hand(spec, t, w, g, v):
    v = spec.momentum * v + g
    return w - spec.learning_rate * v, v


def adamw_by_hand(spec, t, w, g, m, s):
    w = w - spec.learning_rate * spec.weight_decay * w
    m = spec.beta1 * m + (1 - spec.beta1) * g
    s = spec.beta2 * s + (1 - spec.beta2) * g**2
    corrected_m = m / (1 - spec.beta1**t)
    corrected_s = s / (1 - spec.beta2**t)
    return w - spec.learning_rate * (corrected_m / (math.sqrt(corrected_s) + spec.epsilon)), m, s


def lion_by_hand(spec, t, w, g, m):
    c = spec.beta1 * m + (1 - spec.beta1) * g
    w = w - spec.learning_rate * spec.weight_decay * w - spec.learning_rate * ((c > 0) - (c < 0))
    return w, spec.beta2 * m + (1 - spec.beta2) * g


BY_HAND = {"sgd": sgd_by_hand, "adamw": adamw_by_hand, "lion": lion_by_hand}


def test_every_optimizer_has_its_formula_here():
    assert set(BY_HAND) == {name for name in OPTIMIZERS if optimizer_named(name).is_elementwise}


def drawn():
    stream = np.random.default_rng(0)
    return stream.normal(size=SCALES.shape), stream.normal(size=(STEPS, *SCALES.shape)) * SCALES


@pytest.mark.parametrize(
    "spec",
    [
        SGD,
        dataclasses.replace(SGD, momentum=0.0, learning_rate=1.0),
        dataclasses.replace(SGD, momentum=0.5, learning_rate=1e-3),
        ADAMW,
        dataclasses.replace(ADAMW, weight_decay=0.0),
        dataclasses.replace(ADAMW, weight_decay=0.5, learning_rate=0.1),
        dataclasses.replace(ADAMW, beta1=0.5, beta2=0.75, epsilon=1e-3),
        LION,
        dataclasses.replace(LION, beta1=0.5, beta2=0.75, weight_decay=0.5),
    ],
    ids=str,
)
def test_thirty_steps_are_those_of_the_formulas(spec):
    weights, gradients = drawn()
    w = weights.copy()
    slots = {slot: np.zeros_like(w) for slot in spec.slots}
    expected = [(float(weight), *[0.0] * len(spec.slots)) for weight in weights]
    largest = np.abs(expected)
    for t, g in enumerate(gradients, 1):
        spec.update(t, w, g, slots)
        expected = [
            BY_HAND[spec.name](spec, t, now[0], float(each), *now[1:]) for now, each in zip(expected, g, strict=True)
        ]
        # Relative to the largest that each number has been, since w and m change sign. Each step rounds by half an ulp,
        # 1.1e-16, in either direction: 30 of them add up like a random walk, to 6e-16.
        largest = np.maximum(largest, np.abs(expected))
        found = np.stack([w, *slots.values()], axis=1)
        np.testing.assert_array_less(np.abs(found - expected) / largest, 1e-15)


@pytest.mark.parametrize("spec", [SGD, ADAMW, LION], ids=lambda spec: spec.name)
def test_slots_start_at_zero_with_one_of_each_name_for_each_parameter(spec):
    params = {"a": Param((2, 3), "kernel"), "b": Param((4,), "bias")}
    slots = empty_slots(spec, params)
    assert tuple(slots) == spec.slots
    for arrays in slots.values():
        assert {name: array.shape for name, array in arrays.items()} == {"a": (2, 3), "b": (4,)}
        assert not any(array.any() for array in arrays.values())


def test_the_first_step_of_adamw_is_one_rate_long_in_every_direction():
    w, g = np.zeros(3), np.array([1e-3, -1.0, 1e3])
    ADAMW.update(1, w, g, {slot: np.zeros(3) for slot in ADAMW.slots})
    # m_hat / (sqrt(s_hat) + epsilon) = sign(g) / (1 + epsilon / |g|), where epsilon / |g| is 1e-5 at most
    np.testing.assert_allclose(w, -ADAMW.learning_rate * np.sign(g), rtol=1.1e-5)


def test_weight_decay_never_enters_the_moments():
    slots = {slot: np.zeros(1) for slot in ADAMW.slots}
    w = np.array([2.0])
    dataclasses.replace(ADAMW, weight_decay=0.5).update(1, w, np.zeros(1), slots)
    assert not any(slot.any() for slot in slots.values())
    assert w[0] == 2.0 - 0.01 * 0.5 * 2.0


def test_a_gradient_is_left_as_it_was():
    for spec in (SGD, ADAMW, LION):
        g = np.ones(2)
        spec.update(1, np.zeros(2), g, {slot: np.zeros(2) for slot in spec.slots})
        assert g.tolist() == [1, 1]


@pytest.mark.parametrize("shape", [(6, 6), (4, 9), (9, 4)])
def test_muon_moves_a_matrix_along_its_singular_vectors(shape):
    stream, spec = np.random.default_rng(0), Muon(0.125, weight_decay=0.5)
    w, g, v = stream.normal(size=(3, *shape))
    before, moment = w.copy(), spec.beta1 * v + (1 - spec.beta1) * g
    left, sizes, right = np.linalg.svd(spec.beta1 * moment + (1 - spec.beta1) * g, full_matrices=False)
    slots = {"first_moment": v}
    spec.update(7, w, g, slots)
    np.testing.assert_allclose(slots["first_moment"], moment, rtol=1e-15)
    # The same polynomial of each singular value, by itself.
    each = sizes / np.linalg.norm(sizes)
    for _ in range(5):
        each = 3.4445 * each - 4.7750 * each**3 + 2.0315 * each**5
    move = 0.125 * 0.2 * math.sqrt(max(shape)) * (left * each) @ right
    np.testing.assert_allclose(w, before * (1 - 0.125 * 0.5) - move, rtol=0, atol=1e-13)
    assert 0.6 < each.min() <= each.max() < 1.3


def test_muon_is_the_same_for_a_kernel_and_its_transpose():
    stream, spec = np.random.default_rng(1), Muon(0.1)
    w, g, v = stream.normal(size=(3, 5, 8))
    turned = w.T.copy()
    spec.update(1, turned, g.T, {"first_moment": v.T.copy()})
    spec.update(1, w, g, {"first_moment": v})
    np.testing.assert_allclose(turned.T, w, rtol=0, atol=1e-14)


def test_muon_is_adamw_for_all_but_matrices():
    stream, spec = np.random.default_rng(2), Muon(0.1)
    w, g, m, s = abs(stream.normal(size=(4, 5, 8)))
    for param in (Param((5, 8), "table"), Param((5, 8, 1, 1), "kernel"), Param((5,), "bias"), Param((5,), "scale")):
        assert set(spec.state(param)) == {"first_moment", "second_moment"}
    mine, theirs = (w.copy(), {"first_moment": m.copy(), "second_moment": s.copy()}), (w.copy(), {})
    spec.update(3, mine[0], g, mine[1])
    AdamW(0.1, 0.95, 0.95).update(3, theirs[0], g, theirs[1] | {"first_moment": m, "second_moment": s})
    np.testing.assert_array_equal(mine[0], theirs[0])


@pytest.mark.parametrize("shape", [(6, 6), (4, 9), (7,), (3, 3, 2, 5)])
def test_adafactor_divides_by_what_rows_and_columns_estimate(shape):
    stream, spec = np.random.default_rng(0), Adafactor(0.125, weight_decay=0.5)
    w, g = stream.normal(size=(2, *shape))
    slots = {slot: stream.random(each) for slot, each in spec.state(Param(shape, "kernel")).items()}
    before, kept = w.copy(), {slot: value.copy() for slot, value in slots.items()}
    spec.update(9, w, g, slots)
    forgotten = 9**-0.8
    if len(shape) == 2:
        rows = (1 - forgotten) * kept["row_moment"][:, 0] + forgotten * np.array([np.mean(row**2) for row in g])
        columns = (1 - forgotten) * kept["column_moment"][0] + forgotten * np.array([np.mean(c**2) for c in g.T])
        estimate = np.outer(rows, columns) / np.mean(rows)
    else:
        estimate = (1 - forgotten) * kept["second_moment"] + forgotten * g**2
    u = g / np.sqrt(estimate)
    length = np.linalg.norm(before) / math.sqrt(before.size) * min(0.125, 1 / 3)
    clipped = u / max(1.0, np.linalg.norm(u) / math.sqrt(u.size))
    np.testing.assert_allclose(w, before * (1 - 0.125 * 0.5) - length * clipped, rtol=0, atol=1e-15)


def test_adafactor_keeps_a_matrix_as_a_row_and_a_column():
    assert sum(math.prod(shape) for shape in Adafactor(0.1).state(Param((300, 200), "table")).values()) == 500
    assert Adafactor(0.1).state(Param((3, 3, 2, 5), "kernel")) == {"second_moment": (3, 3, 2, 5)}


def test_adafactor_is_the_same_for_a_kernel_and_its_transpose():
    stream, spec = np.random.default_rng(1), Adafactor(0.1)
    w, g = stream.normal(size=(2, 5, 8))
    turned, (r, c) = w.T.copy(), (stream.random((5, 1)), stream.random((1, 8)))
    c *= r.mean() / c.mean()  # as in training: both have the mean of all squares
    spec.update(3, turned, g.T, {"row_moment": c.T.copy(), "column_moment": r.T.copy()})
    spec.update(3, w, g, {"row_moment": r, "column_moment": c})
    np.testing.assert_allclose(turned.T, w, rtol=0, atol=1e-15)
