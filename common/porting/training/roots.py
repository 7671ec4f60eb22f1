"""Finds where optimizers that divide by a root add their epsilon: torch after the root, Keras under it."""

import numpy as np

from samestep.common.porting.case import Hyper

_FITS = 1e-4
"""The largest relative error of a formula that fits a step."""
_NAMES = (("lr", "learning_rate"), ("eps", "epsilon"), ("alpha", "rho"), ("initial_accumulator_value",))
"""The frameworks' names of the rate, epsilon, rho, and the initial sum of squares of Adagrad."""


def explain_root(settings: tuple[Hyper, Hyper], gradient: np.ndarray, steps: tuple[np.ndarray, np.ndarray]) -> str:
    """Says where RMSprop or Adagrad adds epsilon on each side, if that explains both first steps; "" otherwise.

    Args:
        settings: The settings of the optimizers of both sides.
        gradient: The gradient of a parameter, which is the same on both sides.
        steps: How far each side moved it.
    """
    under = [_is_under(each, gradient, step) for each, step in zip(settings, steps, strict=True)]
    if None in under or under[0] == under[1]:
        return ""
    first, second = ("{b}", "{a}") if under[1] else ("{a}", "{b}")
    return f"{first} adds epsilon under the root, {second} after it"


def _is_under(given: Hyper, gradient: np.ndarray, step: np.ndarray) -> bool | None:
    """Returns whether epsilon stands under the root in a first step; None if neither place explains the step."""
    kind = given.get("kind")
    found = (next((given[name] for name in names if name in given), 0.0) for names in _NAMES)
    rate, epsilon, rho, start = (float(str(each)) for each in found)
    if kind not in ("RMSprop", "Adagrad") or epsilon == 0:
        return None
    mean = (1 - rho) * gradient**2 if kind == "RMSprop" else start + gradient**2
    for is_under, root in ((False, np.sqrt(mean) + epsilon), (True, np.sqrt(mean + epsilon))):
        if np.abs(-rate * gradient / root - step).max() <= _FITS * np.abs(step).max():
            return is_under
    return None
