"""The losses, summed over every target."""

from collections.abc import Callable

import torch
from torch.nn import functional

from samestep.common.workload.declaration import CLASSES_FIRST
from samestep.common.workload.models.spec import IGNORED

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""Given outputs and targets, returns a loss."""


def cross_entropy(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Returns the sum of -log softmax(logits)[target]; targets below 0 do not count.

    Args:
        logits: [..., classes].
        targets: [...], classes.
    """
    flat = logits.flatten(0, -2), targets.flatten()
    return functional.cross_entropy(*flat, reduction="sum", ignore_index=IGNORED)


def cross_entropy_classes_first(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Returns the sum of -log softmax(logits)[target]; targets below 0 do not count.

    Args:
        logits: [batch, classes, ...].
        targets: [batch, ...], classes.
    """
    return functional.cross_entropy(logits, targets, reduction="sum", ignore_index=IGNORED)


def binary_cross_entropy(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Returns the sum of log(1 + exp(logit)) - target * logit.

    Args:
        logits: [batch].
        targets: [batch], 0 or 1.
    """
    return functional.binary_cross_entropy_with_logits(logits, targets.to(logits.dtype), reduction="sum")


def mean_squared_error(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Returns the sum of (output - target)^2.

    Args:
        outputs: [batch, outputs].
        targets: [batch, outputs], real numbers.
    """
    return functional.mse_loss(outputs, targets, reduction="sum")


LOSSES = {
    "cross_entropy": cross_entropy,
    CLASSES_FIRST: cross_entropy_classes_first,
    "binary_cross_entropy": binary_cross_entropy,
    "mean_squared_error": mean_squared_error,
}
