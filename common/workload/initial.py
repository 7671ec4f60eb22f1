"""The initial weights: the same numbers for every framework, strategy and dtype, drawn one parameter at a time."""

import dataclasses
import zlib
from collections.abc import Iterator, Mapping

import numpy as np

from samestep.common.workload.models.spec import ModelSpec, Param


@dataclasses.dataclass(frozen=True, eq=False)
class InitialWeights(Mapping[str, np.ndarray]):
    """Parameter name -> float64 array, which is drawn whenever it is asked for, and kept by nobody here.

    Whoever holds only a shard of the model draws one parameter, keeps its part, and forgets the rest.

    Attributes:
        model: The spec, which has the shape and the spread of every parameter.
        seed: The seed of the run.
    """

    model: ModelSpec
    seed: int

    def __getitem__(self, name: str) -> np.ndarray:
        return draw(name, self.model.params()[name], self.seed)

    def __iter__(self) -> Iterator[str]:
        return iter(self.model.params())

    def __len__(self) -> int:
        return len(self.model.params())


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


def init(model: ModelSpec, seed: int) -> dict[str, np.ndarray]:
    """Draws all initial parameters at once, as `InitialWeights` has them.

    Args:
        model: The spec of the model.
        seed: The seed of the run.
    """
    return dict(InitialWeights(model, seed))
