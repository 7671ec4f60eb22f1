"""The initial weights: the same numbers for every framework, strategy and dtype."""

import zlib

import numpy as np

from samestep.common.workload.models.own import OwnSpec
from samestep.common.workload.models.spec import ModelSpec


def initial_buffers(model: ModelSpec) -> dict[str, np.ndarray]:
    """The initial buffers, by neutral name; our own models have none."""
    return model.initial("buffers") if isinstance(model, OwnSpec) else {}


def init(model: ModelSpec, seed: int) -> dict[str, np.ndarray]:
    """Draws the initial parameters.

    Each parameter has its own stream, from (seed, name), so that a process may draw only what it holds. Drawn in
    float64 and rounded once to float32-representable numbers, so that both dtypes start bit-equal.

    Args:
        model: The spec, which has the shape and the spread of every parameter.
        seed: The seed of the run.

    Returns:
        Parameter name -> float64 array.
    """
    if isinstance(model, OwnSpec):
        return model.initial()  # drawn by its own framework when it was described
    values = {}
    for name, param in model.params().items():
        value = np.full(param.shape, param.constant)
        if param.std:
            stream = np.random.default_rng([seed, zlib.crc32(name.encode())])
            value += stream.normal(scale=param.std, size=param.shape)
        values[name] = value.astype(np.float32).astype(np.float64)
    return values
