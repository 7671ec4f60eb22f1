"""Metrics of a trained model on held-out data."""

import dataclasses
import math
from collections.abc import Callable

import numpy as np


@dataclasses.dataclass(frozen=True)
class Metric:
    """A metric, and which direction is better.

    Attributes:
        measure: (logits, targets) -> value.
        direction: Which values are better, "higher" or "lower".
    """

    measure: Callable[[np.ndarray, np.ndarray], float]
    direction: str


def accuracy(logits: np.ndarray, targets: np.ndarray) -> float:
    """Computes the share of targets that have the largest logit; targets below 0 do not count.

    Args:
        logits: [examples, ..., classes].
        targets: [examples, ...].
    """
    return float((logits.argmax(axis=-1) == targets)[targets >= 0].mean())


def bits_per_token(logits: np.ndarray, targets: np.ndarray) -> float:
    """Computes the mean cross-entropy in bits; targets below 0 do not count.

    Args:
        logits: [examples, context, vocabulary].
        targets: [examples, context].
    """
    logits, targets = logits[targets >= 0], targets[targets >= 0]
    chosen = np.take_along_axis(logits, targets[..., None], axis=-1)[..., 0].astype(np.float64)
    largest = logits.max(axis=-1, keepdims=True).astype(np.float64)
    total = np.log(np.exp(logits - largest).sum(axis=-1)) + largest[..., 0]
    return float((total - chosen).mean() / math.log(2))


def auc(logits: np.ndarray, targets: np.ndarray) -> float:
    """Computes the chance that a positive example scores above a negative one; ties count half.

    Args:
        logits: [examples].
        targets: [examples], 0 or 1.

    References:
        Mann and Whitney 1947: the rank sum of the positives.
    """
    positives = int(targets.sum())
    negatives = len(targets) - positives
    if not positives or not negatives:
        return math.nan
    _, inverse, counts = np.unique(logits, return_inverse=True, return_counts=True)
    ranks = np.cumsum(counts) - (counts - 1) / 2
    rank_sum = float(ranks[inverse][targets == 1].sum())
    return (rank_sum - positives * (positives + 1) / 2) / (positives * negatives)


def root_mean_squared_error(outputs: np.ndarray, targets: np.ndarray) -> float:
    """Computes the root of the mean squared difference over examples and outputs, in the unit of the targets.

    Args:
        outputs: [examples, outputs].
        targets: [examples, outputs].
    """
    return float(np.sqrt(np.square(outputs.astype(np.float64) - targets).mean()))


METRICS = {
    "accuracy": Metric(accuracy, "higher"),
    "bits_per_byte": Metric(bits_per_token, "lower"),  # where each token is a byte
    "bits_per_token": Metric(bits_per_token, "lower"),
    "auc": Metric(auc, "higher"),
    "root_mean_squared_error": Metric(root_mean_squared_error, "lower"),
}


def direction_of(name: str) -> str:
    """Returns which direction of a metric is better; "" for a user's metric, which does not declare one.

    For a user's loss it is "lower".
    """
    if name == "loss":
        return "lower"
    return METRICS[name].direction if name in METRICS else ""
