"""The initial weights: the same numbers for every framework, strategy and dtype, drawn one parameter at a time."""

import dataclasses
import zlib
from collections.abc import Iterator, Mapping

import numpy as np

from samestep.common.workload.compression import FACTOR
from samestep.common.workload.models.own import OwnSpec
from samestep.common.workload.models.spec import ModelSpec, Param, batch_norms


@dataclasses.dataclass(frozen=True, eq=False)
class InitialWeights(Mapping[str, np.ndarray]):
    """Parameter name -> float64 array, which is drawn whenever it is asked for, and kept by nobody here.

    Whoever holds only a shard of the model draws one parameter, keeps its part, and forgets the rest.

    Attributes:
        params: The shape and the spread of every parameter.
        seed: The seed of the run.
    """

    params: Mapping[str, Param]
    seed: int

    def __getitem__(self, name: str) -> np.ndarray:
        return draw(name, self.params[name], self.seed)

    def __iter__(self) -> Iterator[str]:
        return iter(self.params)

    def __len__(self) -> int:
        return len(self.params)


def draw(name: str, param: Param, seed: int) -> np.ndarray:
    """Draws the initial values of one parameter.

    Each parameter has its own stream, from (seed, name), so that a process may draw only what it holds. Drawn in
    float64 and rounded once to float32-representable numbers, so that both dtypes start bit-equal.

    Args:
        name: Of the parameter.
        param: Its shape and spread.
        seed: The seed of the run.
    """
    if not param.std:
        return np.full(param.shape, np.float32(param.constant), np.float64)
    stream = np.random.default_rng([seed, zlib.crc32(name.encode())])
    value = stream.normal(scale=param.std, size=param.shape)
    value += param.constant
    value[...] = value.astype(np.float32)  # in place: a large parameter takes no second float64 array
    return value


def initial_factor(name: str, shape: tuple[int, int], seed: int) -> np.ndarray:
    """Draws the factor that PowerSGD starts with, float32-representable numbers from a stream of its own.

    Args:
        name: Of the parameter.
        shape: Columns of the parameter's matrix, and rank.
        seed: The seed of the run.
    """
    stream = np.random.default_rng([seed, zlib.crc32(f"{FACTOR}/{name}".encode())])
    return stream.normal(size=shape).astype(np.float32).astype(np.float64)


def initial_weights(model: ModelSpec, seed: int) -> Mapping[str, np.ndarray]:
    """The initial parameters by neutral name, each drawn when it is asked for.

    Args:
        model: The spec of the model.
        seed: The seed of the run.
    """
    if isinstance(model, OwnSpec):
        return model.initial()  # drawn by its own framework when it was described
    return InitialWeights(model.params(), seed)


def init(model: ModelSpec, seed: int) -> dict[str, np.ndarray]:
    """Draws all initial parameters at once.

    Args:
        model: The spec of the model.
        seed: The seed of the run.
    """
    return dict(initial_weights(model, seed))


def initial_buffers(model: ModelSpec) -> dict[str, np.ndarray]:
    """The initial buffers, by neutral name: of our own models the running statistics of batch normalisations."""
    if isinstance(model, OwnSpec):
        return dict(model.initial("buffers"))
    kinds = {"running_mean": np.zeros, "running_var": np.ones}
    return {
        f"{path}/{kind}": make(channels)
        for path, channels in batch_norms(model).items()
        for kind, make in kinds.items()
    }
