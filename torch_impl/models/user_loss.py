"""The loss of a user's model: their function, or the loss that the model returns."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from samestep.common.workload.declaration import RETURNED, Model
from samestep.common.workload.models.spec import ModelSpec
from samestep.common.workload.reductions import divisor_of, is_mean_of_own, metric_of, times
from samestep.torch_impl.models.user_model import declared


def loss_function(model: Model) -> Callable[..., Any] | None:
    """Returns the function that makes losses of what a model returns: the user's or its own; None if it is ours.

    Args:
        model: The declaration.
    """
    if isinstance(model.loss, Mapping):
        return model.loss.get("torch")
    return _own_mean if model.loss == RETURNED else None


def _own_mean(outputs: object, targets: torch.Tensor) -> torch.Tensor:
    """Returns the mean over examples of the model's own loss, which was repeated for each of them."""
    assert isinstance(outputs, torch.Tensor)
    return outputs.mean()


def user_loss(spec: ModelSpec) -> Callable[[object, torch.Tensor], torch.Tensor]:
    """Returns the user's own loss, summed over what it returns."""
    function = loss_function(declared(spec))
    assert function is not None
    if is_mean_of_own(spec):
        return lambda outputs, targets: function(outputs, targets) * divisor_of(spec, "torch", targets.cpu().numpy())
    return lambda outputs, targets: function(outputs, targets).sum() * times(spec, len(targets))


def user_mean_loss(spec: ModelSpec) -> Callable[[np.ndarray, np.ndarray], float]:
    """Returns the user's own loss as a metric of all held-out examples; NaN where it takes more than outputs."""
    loss = user_loss(spec)
    return metric_of(spec, "torch", lambda *both: float(loss(*map(torch.from_numpy, both))))
