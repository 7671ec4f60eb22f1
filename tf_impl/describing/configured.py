"""What a user's model and its optimizer are configured to do, where `samestep port` cannot see it in numbers."""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

import keras
import numpy as np

from samestep.common.workload.optimizers.spec import OptimizerSpec

HyperParameters = dict[str, dict[str, bool | float | str | list[float]]]
"""The settings of an optimizer for each parameter, by neutral name."""


def dropouts(layers: Iterable[Any]) -> dict[int, tuple[str, float]]:
    """Returns what each layer drops in training, by its id: what it drops, and how much of it."""
    found = {}
    for layer in layers:
        is_channels = type(layer).__name__.startswith("Spatial")
        shape = f" of {layer.noise_shape}" if layer.noise_shape is not None else ""
        found[id(layer)] = ("channels" if is_channels else f"elements{shape}", float(layer.rate))
    return found


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
