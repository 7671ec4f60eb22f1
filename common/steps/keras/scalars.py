"""The hyper-parameters of a Keras optimizer, under torch's names."""

import functools
import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from samestep.common.steps.gradient_transforms import EPSILON_BEFORE, KERAS_NAMES

_NAMES = {"beta_1": "betas.0", "beta_2": "betas.1", "epsilon": "eps"} | KERAS_NAMES
_OTHERS = {"built", "learning_rate", "gradient_accumulation_steps"}
"""Settings that are not hyper-parameters, or that a record holds elsewhere: a step is an update, from any number of batches."""


@functools.lru_cache(16)
def written(number: float) -> float:
    """Returns the number that a script most likely wrote before it was rounded to float32, e.g. 0.1."""
    return float(str(np.float32(number)))


def scalars_of(optimizer: Any, variables: Iterable[Any]) -> dict[str, float]:
    """Returns every numeric hyper-parameter of an optimizer except the learning rate, which may change.

    Args:
        optimizer: A Keras optimizer.
        variables: The Keras variables that it updates. If it decays only some of them, the number of elements that it does not
            decay is a hyper-parameter.
    """
    values = {"weight_decay": 0.0} | {name: value for name, value in vars(optimizer).items() if name not in _OTHERS}
    numbers = {name: value or 0.0 if name == "weight_decay" else value for name, value in values.items()}
    if not values.get("use_ema"):
        numbers.pop("ema_momentum", None)
    if numbers["weight_decay"] and hasattr(optimizer, "_use_weight_decay"):
        numbers["weights_without_decay"] = sum(
            math.prod(each.shape) for each in variables if not optimizer._use_weight_decay(each)
        )
    adam = next((each for each in type(optimizer).__mro__ if each.__name__ == "Adam"), None)
    if adam is not None and type(optimizer).update_step is adam.update_step:
        numbers[EPSILON_BEFORE] = True
    return {
        _NAMES.get(name, name): float(value)
        for name, value in numbers.items()
        if isinstance(value, bool | int | float) and not name.startswith("_")
    }
