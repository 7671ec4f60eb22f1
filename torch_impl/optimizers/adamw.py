"""AdamW, which is torch's own."""

from collections.abc import Iterable

import torch
from torch import nn

from samestep.common.workload.optimizers.adamw import AdamW


def build(spec: AdamW, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """Builds torch's AdamW.

    Args:
        spec: The hyper-parameters.
        parameters: The parameters to update.
    """
    betas = (spec.beta1, spec.beta2)
    return torch.optim.AdamW(
        parameters, lr=spec.learning_rate, betas=betas, eps=spec.epsilon, weight_decay=spec.weight_decay
    )
