"""The loss of a user model: the user's function, or the loss that the model returns."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from samestep.common.workload.declaration import RETURNED, Model
from samestep.common.workload.models.spec import ModelSpec
from samestep.common.workload.reductions import divisor_of, is_mean_of_own, metric_of, times
from samestep.torch_impl.models.user_model import declared


def loss_function(model: Model) -> Callable[..., Any] | None:
    """Returns the function that computes losses from what a user model returns; None if the loss is one of ours.

    Args:
        model: The declaration.
    """
    if isinstance(model.loss, Mapping):
        return model.loss.get("torch")
    return _own_mean if model.loss == RETURNED else None


def _own_mean(outputs: object, targets: torch.Tensor) -> torch.Tensor:
    """Returns the model's own loss, as the mean over examples, for each of which it was repeated."""
    assert isinstance(outputs, torch.Tensor)
    return outputs.mean()


def user_loss(spec: ModelSpec) -> Callable[[object, torch.Tensor], torch.Tensor]:
    """Returns the user's loss, summed over everything that their function returns."""
    function = loss_function(declared(spec))
    assert function is not None
    if is_mean_of_own(spec):
        return lambda outputs, targets: function(outputs, targets) * divisor_of(spec, "torch", targets.cpu().numpy())
    return lambda outputs, targets: function(outputs, targets).sum() * times(spec, len(targets))


def user_mean_loss(spec: ModelSpec) -> Callable[[np.ndarray, np.ndarray], float]:
    """Returns the user's loss as a metric of all held-out examples; NaN if it takes more than outputs."""
    loss = user_loss(spec)
    return metric_of(spec, "torch", lambda *both: float(loss(*map(torch.from_numpy, both))))
