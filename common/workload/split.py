"""The neutral split table: the axis along which each parameter may be split for tensor parallelism, in both frameworks."""

import functools
from collections.abc import Mapping
from types import MappingProxyType

from samestep.common.errors import ConfigError
from samestep.common.workload.models.spec import ModelSpec


@functools.lru_cache(maxsize=64)  # a deep model has thousands of parameters, and every stage of a pipeline calls it
def even_split_table(model: ModelSpec, parts: int) -> Mapping[str, int]:
    """Returns parameter name -> the axis along which it is split into equal parts; all other parameters stay whole.

    A table stays whole if its rows do not divide evenly.

    Args:
        model: The spec of the model.
        parts: The number of parts of each parameter.

    Raises:
        ConfigError: Another parameter, or the groups of its indices, do not divide evenly.
    """
    table = {}
    for name, param in model.params().items():
        axis = param.split
        if axis is None:
            continue
        if param.groups % parts:
            raise ConfigError(
                f"{param.groups} heads do not divide among a tensor axis of {parts}; use one that divides "
                f"{param.groups}, or another number of +heads=."
            )
        if param.shape[axis] % parts == 0:
            table[name] = axis
        elif not param.lookups:
            raise ConfigError(
                f"{name} {list(param.shape)} does not split into {parts} equal parts along dimension {axis}; use a tensor "
                f"axis that divides {param.shape[axis]}, or a model of another width."
            )
    return MappingProxyType(table)
