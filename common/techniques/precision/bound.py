"""How far rounding alone may move a step whose forward and backward pass are computed in two bytes.

A product rounds its two factors and its result, each by u of its size at most. A model with K kernels has as many products in
a row (a transformer's block has six of both), and a gradient has gone through each of them forward and backward: 6 K
roundings. Independent errors of n roundings add up as a random walk does, to the square root of n times u. So loss and gradient
are off by

    sqrt(6 K) u

of their size. The sums within a product, over a batch and over devices are taken in float32, and add nothing to that. With
u = 2^-8 it is 1.7 % for three layers, and 3.5 % for a transformer of two blocks.

A batch normalization takes and returns two bytes in torch, and multiplies by a scale: it counts as one more product. Its
statistics are sums, in float32. But it divides by the deviation of what was rounded relative to its size, so errors grow on their
way through N of them: `error_growth` derives by how much, g^N in the square. Every rounding has at most all of these before it
or after it:

    sqrt(6 (K + N) g^N) u        with g = 1.47 after a ReLU, 1.23 after a GELU, more for statistics of few numbers

The factor of the data (E[x^2] / Var[x] is 3.2 for the digits, 1.2 for mnist) is less than the reserve in u: u is the largest
rounding error, and 0.42 u the root mean square for numbers whose logarithms are spread evenly.

A batch's mean and variance are off by as much as the numbers that they are computed from, and so are the changes of the running
statistics.

The kernels of a user's model are unknown, so its roundings are counted when it is described, on the longest path from inputs to
outputs: one for each result in two bytes, and one more for the other factor of a product. The backward pass has as many as these
n. For our models that is 3 K, so the bound is the same: sqrt(2 n) u.

References:
    Higham and Mary 2019, "A new approach to probabilistic rounding error analysis", SIAM J. Sci. Comput. 41 (5), theorem 2.4
    with lambda = 1; Blanchard et al. 2020, SIAM J. Sci. Comput. 42 (3) (products of two bytes that are summed in four).
"""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from samestep.common.features.used import error_growth, layers_of
from samestep.common.request import UNIT_ROUNDOFF
from samestep.common.strategy import Run
from samestep.common.workload.models.parameters import ROUNDINGS

if TYPE_CHECKING:
    import numpy as np  # a prediction does not need it

MASTERS_IN_TWO_BYTES = (
    "the parameters themselves are kept in two bytes: updates that are smaller than their last bit are lost"
)
_SPARE_BITS = 13
"""By how many significant bits float32 (24) exceeds fp16 (11), which has more than bf16."""


def gradient_error(run: Run) -> float:
    """Returns how far rounding may move the loss and the gradient of a step, relative to their size."""
    model = run.workload.model
    rounded = model.facts.kept if run.techniques.keep_dtypes else model.facts.rounded
    one_way = rounded.roundings + ROUNDINGS * len(layers_of(model))
    return math.sqrt(2 * one_way * error_growth(run)) * UNIT_ROUNDOFF[run.arithmetic]


def find_flaw(params: Mapping[str, "np.ndarray"]) -> str:
    """Returns a message if parameters are kept in two bytes; "" otherwise.

    Args:
        params: The master weights in float32, by name, after a step.
    """
    return MASTERS_IN_TWO_BYTES if fit_in_two_bytes(params) else ""


def fit_in_two_bytes(params: Mapping[str, "np.ndarray"]) -> bool:
    """Returns whether all parameters have so few significant bits that they may have been kept in two bytes.

    An update that was computed in float32 leaves one number in 2^13 like that, but never a whole model of them.

    Args:
        params: The master weights in float32, by name, after a step.
    """
    spare = (1 << _SPARE_BITS) - 1
    return all(not (value.astype("float32").view("int32") & spare).any() for value in params.values())
