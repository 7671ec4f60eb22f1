"""The losses, summed over all targets, with their gradients."""

from collections.abc import Callable, Mapping

import numpy as np
from scipy.special import expit

Loss = Callable[[np.ndarray, np.ndarray], tuple[float, np.ndarray]]
"""(logits, targets) -> the sum over all targets, and its gradient with respect to the logits."""


def cross_entropy(logits: np.ndarray, targets: np.ndarray) -> tuple[float, np.ndarray]:
    """Computes the sum of -log softmax(logits)[target]; targets below 0 do not count.

    Args:
        logits: [..., classes].
        targets: The classes, [...].

    Returns:
        The sum, and its gradient with respect to the logits.
    """
    counts, targets = targets[..., None] >= 0, np.maximum(targets, 0)
    shifted = logits - logits.max(axis=-1, keepdims=True)
    chosen = np.take_along_axis(shifted, targets[..., None], axis=-1)
    gradient = np.exp(shifted)
    sums = gradient.sum(axis=-1, keepdims=True)
    gradient /= sums
    np.put_along_axis(gradient, targets[..., None], np.take_along_axis(gradient, targets[..., None], -1) - 1, axis=-1)
    return float(((np.log(sums) - chosen) * counts).sum()), gradient * counts


def binary_cross_entropy(logits: np.ndarray, targets: np.ndarray) -> tuple[float, np.ndarray]:
    """Computes the sum of log(1 + exp(logit)) - target * logit.

    Args:
        logits: [batch].
        targets: [batch], 0 or 1.

    Returns:
        The sum, and its gradient with respect to the logits.
    """
    loss = np.logaddexp(0, logits) - targets * logits
    return float(loss.sum()), expit(logits) - targets


def mean_squared_error(outputs: np.ndarray, targets: np.ndarray) -> tuple[float, np.ndarray]:
    """Computes the sum of (output - target)^2.

    Args:
        outputs: [batch, outputs].
        targets: [batch, outputs], real numbers.

    Returns:
        The sum, and its gradient with respect to the outputs.
    """
    error = outputs - targets
    return float((error * error).sum()), 2 * error


LOSSES: Mapping[str, Loss] = {
    "cross_entropy": cross_entropy,
    "binary_cross_entropy": binary_cross_entropy,
    "mean_squared_error": mean_squared_error,
}
