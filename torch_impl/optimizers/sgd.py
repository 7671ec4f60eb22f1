"""SGD with momentum, which is torch's own."""

from collections.abc import Iterable

import torch
from torch import nn

from samestep.common.workload.optimizers.sgd import Sgd


def build(spec: Sgd, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """Builds torch's SGD.

    Args:
        spec: The hyper-parameters.
        parameters: The parameters to update.
    """
    return torch.optim.SGD(parameters, lr=spec.learning_rate, momentum=spec.momentum)
