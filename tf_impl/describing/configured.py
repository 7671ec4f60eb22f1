"""What a user's optimizer is configured to do, where `samestep port` cannot see it in numbers."""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

import keras
import numpy as np

from samestep.common.workload.optimizers.spec import OptimizerSpec

HyperParameters = dict[str, dict[str, bool | float | str | list[float]]]
"""The settings of an optimizer for each parameter, by neutral name."""


def hyper_parameters(optimizer: Any, variables: Mapping[str, Any]) -> HyperParameters:
    """Returns the settings of an optimizer of Keras for each parameter, by neutral name.

    Args:
        optimizer: The optimizer, built; of one that is not Keras' own kind nothing is known.
        variables: The parameters, as Keras has them.
    """
    if not isinstance(optimizer, keras.optimizers.Optimizer):
        return {}
    config = optimizer.get_config()
    held = {name: value for name, value in config.items() if isinstance(value, bool | int | float | str)}
    rate = float(np.asarray(optimizer.learning_rate))
    held |= {"kind": type(optimizer).__name__, "learning_rate": rate, "is_decoupled": True}
    without = {**held, "weight_decay": 0.0}
    return {name: held if optimizer._use_weight_decay(v) else without for name, v in variables.items()}


def own_hyper_parameters(spec: OptimizerSpec, names: Iterable[str]) -> HyperParameters:
    """Returns the settings of our optimizer, likewise.

    Args:
        spec: The optimizer.
        names: The names of the parameters.
    """
    held = {"kind": spec.name, "is_decoupled": True, **dataclasses.asdict(spec)}  # pyrefly: ignore
    return dict.fromkeys(names, held)
