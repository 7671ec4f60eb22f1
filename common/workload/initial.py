"""The initial weights: the same numbers for every framework, strategy and dtype, drawn one parameter at a time."""

import dataclasses
import zlib
from collections.abc import Iterator, Mapping

import numpy as np

from samestep.common.workload.models.description import read_initial
from samestep.common.workload.models.spec import ModelSpec, Param
from samestep.common.workload.optimizers.spec import OptimizerSpec


@dataclasses.dataclass(frozen=True, eq=False)
class InitialWeights(Mapping[str, np.ndarray]):
    """Parameter name -> float64 array, which is drawn at each access and not kept.

    A process that holds only a shard of the model draws a parameter, keeps its part, and drops the rest.

    Attributes:
        params: The shape and the standard deviation of every parameter.
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

    Each parameter has its own random stream, seeded by (seed, name), so a process can draw only what it holds. Values are drawn
    in float64 and rounded once to numbers that float32 can represent, so runs in both dtypes start from the same numbers.

    Args:
        name: The name of the parameter.
        param: The shape and the standard deviation of the parameter.
        seed: The seed of the run.
    """
    if not param.std:
        return np.full(param.shape, np.float32(param.constant), np.float64)
    stream = np.random.default_rng([seed, zlib.crc32(name.encode())])
    value = stream.normal(scale=param.std, size=param.shape)
    value += param.constant
    value[...] = value.astype(np.float32)  # in place, so a large parameter needs no second float64 array
    return value


def initial_weights(model: ModelSpec, seed: int) -> Mapping[str, np.ndarray]:
    """Returns the initial parameters by neutral name, each drawn when it is accessed.

    Args:
        model: The spec of the model.
        seed: The seed of the run.
    """
    if (folder := model.facts.folder) is not None:  # its framework drew them when the model was described
        return read_initial(folder, "params", model.params())
    return InitialWeights(model.params(), seed)


def init(model: ModelSpec, seed: int) -> dict[str, np.ndarray]:
    """Draws all initial parameters at once.

    Args:
        model: The spec of the model.
        seed: The seed of the run.
    """
    return dict(initial_weights(model, seed))


def empty_slots(optimizer: OptimizerSpec, params: Mapping[str, Param]) -> dict[str, dict[str, np.ndarray]]:
    """Makes optimizer state of zeros: an array for each slot of each parameter.

    Args:
        optimizer: The optimizer, which defines the slots.
        params: The parameters by name.
    """
    state = {name: optimizer.state(param) for name, param in params.items()}
    return {
        slot: {name: np.zeros(shapes[slot]) for name, shapes in state.items() if slot in shapes}
        for slot in optimizer.slots
    }
