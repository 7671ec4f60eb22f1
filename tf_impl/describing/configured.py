"""The settings of a user's optimizer that `samestep port` cannot see in numbers."""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

import keras
import numpy as np

from samestep.common.flags import FieldValues
from samestep.common.workload.optimizers.spec import OptimizerSpec

HyperParameters = dict[str, dict[str, bool | float | str | list[float]]]
"""The settings of an optimizer for each parameter, by neutral name."""


def hyper_parameters(optimizer: Any, variables: Mapping[str, Any]) -> HyperParameters:
    """Returns the settings of an optimizer of Keras for each parameter, by neutral name.

    Args:
        optimizer: The optimizer, built; nothing is known of a class that is not Keras' own.
        variables: The parameters, as Keras has them.
    """
    if not isinstance(optimizer, keras.optimizers.Optimizer):
        return {}
    config = optimizer.get_config()
    held: FieldValues = {name: value for name, value in config.items() if isinstance(value, bool | int | float | str)}
    rate = float(np.asarray(optimizer.learning_rate))
    held |= {"kind": type(optimizer).__name__, "learning_rate": rate, "is_decoupled": True}
    without = {**held, "weight_decay": 0.0}
    return {name: held if optimizer._use_weight_decay(v) else without for name, v in variables.items()}


def own_hyper_parameters(spec: OptimizerSpec, names: Iterable[str]) -> HyperParameters:
    """Returns the settings of our optimizer in the same form.

    Args:
        spec: The optimizer.
        names: The names of the parameters.
    """
    held = {"kind": spec.name, "is_decoupled": True, **dataclasses.asdict(spec)}
    return dict.fromkeys(names, held)
