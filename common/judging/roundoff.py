"""How far rounding alone may take a step whose forward and backward pass are computed in two bytes.

A product rounds its two factors and its result, each by u of its size at most. A model with K kernels has as many products in
a row (a transformer's block has six of both), and a gradient has gone through each of them forward and backward: 6 K
roundings. Independent errors of n roundings add up as a random walk does, to the square root of n times u. So loss and gradient
are off by

    sqrt(6 K) u

of their size. The sums within a product, over a batch and over devices are taken in float32, and add nothing to that. With
u = 2^-8 it is 1.7 % for three layers, and 3.5 % for a transformer of two blocks.

A batch normalisation takes and returns two bytes in torch, and multiplies by a scale: it counts as one more product. Its
statistics are sums, in float32. But it divides by the deviation of what was rounded relative to its size, so errors grow on their
way through N of them: `error_growth` derives by how much, g^N in the square. Every rounding has all of that ahead of it or behind
it at most:

    sqrt(6 (K + N) g^N) u        with g = 1.47 behind a ReLU, 1.23 behind a GELU, more for statistics of few numbers

What data have beside that (E[x^2] / Var[x] is 3.2 of the digits, 1.2 of mnist) is less than what u has in reserve: it is the
largest rounding, and 0.42 u the root mean square of those of numbers whose logarithms are spread evenly.

A batch's mean and variance are off by as much as what they are taken of, and so is what they move the running statistics by.

The kernels of a user's model are unknown, so its roundings are counted where it is described, on the longest way from inputs to
outputs: one for each result in two bytes, and one more for the other factor of a product. The backward pass has as many as these
n. Of our models that is 3 K, so the bound is the same: sqrt(2 n) u.

References:
    Higham and Mary 2019, "A new approach to probabilistic rounding error analysis", SIAM J. Sci. Comput. 41 (5), theorem 2.4
    with lambda = 1; Blanchard et al. 2020, SIAM J. Sci. Comput. 42 (3) (products of two bytes that are summed in four).
"""

import math
from collections.abc import Mapping

import numpy as np

from samestep.common.batch_norm import error_growth
from samestep.common.strategy import Run
from samestep.common.workload.models.own import OwnSpec
from samestep.common.workload.models.spec import batch_norms

UNIT_ROUNDOFF = {"float64": 2.0**-53, "float32": 2.0**-24, "bf16": 2.0**-8, "fp16": 2.0**-11}
"""How far rounding moves a number, relative to it, at most."""
SPREAD = 3
"""How many times that a single step, or one parameter, may be off at most."""
ROUNDINGS = 6
"""Of one product: both factors and the result, forward and backward."""
NOISE = {"float64": 1e-11, "float32": 1e-3}
"""How far rounding may take a gradient, or the optimizer state in one step, relative to its length."""
MOVE_NOISE = {"float64": 1e-9, "float32": 5e-3}
"""The same of the weights' move: Adam's division of small gradients amplifies rounding."""

RESIDUAL_NOISE = {"float64": 1e-8, "float32": 0.1}
"""The same of what compression leaves out."""


def gradient_error(run: Run) -> float | None:
    """How far rounding takes loss and gradient of a step, relative to their size; None unless it is computed in two bytes."""
    if run.techniques.precision is None:
        return None
    if isinstance(model := run.workload.model, OwnSpec):
        roundings = 2 * model.described.two_bytes.roundings  # the backward pass has as many
    else:
        products = sum(param.role == "kernel" or param.tied for param in model.params().values())  # a tied table, too
        roundings = ROUNDINGS * (products + len(batch_norms(model))) * error_growth(run)
    return math.sqrt(roundings) * UNIT_ROUNDOFF[run.arithmetic]


def noise_of(run: Run) -> tuple[float, float]:
    """How far rounding may take a gradient, and the weights' move, relative to their length.

    In Adam's first step every weight moves by the learning rate, in the direction of its gradient's sign. If gradients are off
    by a share e, about e / 2 of them are small enough for another sign, and are off by twice their move: sqrt(2 e) of its length.
    """
    error = gradient_error(run)
    if error is None:
        return NOISE[run.dtype], MOVE_NOISE[run.dtype]
    return SPREAD * error, SPREAD * error if run.optimizer.name == "sgd" else math.sqrt(2 * error)


def statistics_noise(run: Run, drift: float) -> float | None:
    """How far rounding may take the running statistics of a whole run, relative to their length; None in float64.

    What a step's statistics are taken of is off by what it rounds, which is less than the bound of its gradient. Between steps,
    kernels have drifted apart, and a variance is of the square of a kernel. Frozen statistics do not move. In float64 they are
    bounded as the weights are.

    Args:
        run: What was trained.
        drift: How far its kernels are from the reference's, relative to their length.
    """
    if run.dtype == "float64":
        return None
    if run.batch_norm == "frozen":
        return UNIT_ROUNDOFF[run.dtype]
    return (gradient_error(run) or NOISE[run.dtype]) + 2 * drift


def residual_noise(run: Run) -> float:
    """How far rounding may take what compression left out of the gradients, relative to its length.

    A residual is a hundredth of its gradient, so the same rounding is a hundred times as much of it. In float32 it also tips a
    few numbers in 10,000 over to the next int8, each by three times the length of a residual. Of a gradient that is off by more
    than that, the residual is any.
    """
    return math.inf if gradient_error(run) is not None else RESIDUAL_NOISE[run.dtype]


MASTERS_IN_TWO_BYTES = (
    "the parameters themselves are kept in two bytes: updates that are smaller than their last bit are lost"
)
_SPARE_BITS = 13
"""By how many the 24 significant bits of a float32 exceed the 11 of fp16, which has more of them than bf16."""


def fit_in_two_bytes(params: Mapping[str, np.ndarray]) -> bool:
    """Whether every parameter has so few significant bits that it may have been kept in two bytes.

    An update that was computed in float32 leaves one number in 2^13 like that, and never a whole model of them.

    Args:
        params: Masters in float32, by name, after a step.
    """
    spare = (1 << _SPARE_BITS) - 1
    return all(not (value.astype(np.float32).view(np.int32) & spare).any() for value in params.values())
