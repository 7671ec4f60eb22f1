"""Gradients that were not cleared are named only if those of the step before are what the step has too much."""

import dataclasses

import numpy as np
import pytest

from samestep.common.mistakes.evidence import Evidence, Side
from samestep.common.mistakes.seen_tensor import SeenTensor
from samestep.common.mistakes.table import causes
from samestep.common.steps.gradient_transforms import CLIP_CALLS, CLIP_MOST, CLIP_NORM, factor

SIDE = Side(1, 1, 1, 1.0, (1.0,), None, {}, (), (), False, ())
OWN, EARLIER, OTHER = np.random.default_rng(0).normal(size=(3, 8))
"""A's gradient, that of the step before, and one that has nothing to do with either."""


def found(added: np.ndarray, rounding: float, norms: tuple[float, float] = (0.0, 0.0)) -> list[str]:
    """The names of a gradient that has something added to it, each side clipped to 1 from a norm."""
    sides = [dataclasses.replace(SIDE, scalars={CLIP_NORM: norm, CLIP_MOST: 1.0}) for norm in norms]
    factors = [side.factor for side in sides]
    one, other, left = factors[0] * OWN, factors[1] * (OWN + added), EARLIER * 15
    kernel, bias = (
        SeenTensor(name, kind, "parameter", size, one[::way], other[::way], rounding, 10.0, strays=(left[::way],) * 2)
        for name, kind, size, way in (("w", "kernel", 64, 1), ("b", "bias", 8, -1))
    )
    return [cause.name for cause in causes(Evidence("gradient", 2, *sides, (kernel, bias)))]


@pytest.mark.parametrize("norms", [(0.0, 0.0), (4.0, 64.0)])
def test_what_was_not_cleared_is_named(norms: tuple[float, float]) -> None:
    assert found(15 * EARLIER + 0.01 * OTHER, 0.01, norms) == ["gradients_not_cleared"]


def test_a_large_gradient_of_the_step_before_explains_no_difference_that_it_does_not_make() -> None:
    """Where rounding moves a gradient by all of its norm, 15 times as much explains anything."""
    assert not found(20 * OTHER, 1.0)


def test_a_small_gradient_of_the_step_before_is_not_what_a_small_one_is() -> None:
    """Within ten times rounding of both, but no nearer to the other."""
    assert not found(30 * OTHER, 2.0)


@pytest.mark.parametrize("norms", [(3364.0, 51.0), (51.0, 3364.0)])
def test_clipping_that_makes_the_whole_difference_leaves_nothing_to_explain(norms: tuple[float, float]) -> None:
    assert "gradients_not_cleared" not in found(0.1 * OTHER, 1e-4, norms)


@pytest.mark.torch
def test_a_small_norm_is_clipped_as_torch_does() -> None:
    """It adds to the norm, which is seven millionths of one of 0.15: many times rounding."""
    import torch

    weight = torch.nn.Parameter(torch.zeros(8))
    weight.grad = torch.full((8,), 0.05)
    norm = float(torch.nn.utils.clip_grad_norm_([weight], 0.01))
    scalars = {CLIP_NORM: norm, CLIP_MOST: 0.01, CLIP_CALLS: 1}
    assert float(weight.grad[0]) / 0.05 == pytest.approx(factor(scalars), rel=3e-7)
