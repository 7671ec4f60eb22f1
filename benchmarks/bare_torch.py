"""The loop that one would write by hand in PyTorch, without any of ours around it but the model."""

from collections.abc import Callable

import numpy as np
import torch
from torch.nn import functional

from common.config import RunConfig
from common.workload.table import Workload
from torch_impl.program import fresh_model


def bare(workload: Workload, config: RunConfig) -> Callable[[np.ndarray, np.ndarray], object]:
    """A function that takes one step on a batch of inputs and targets."""
    model = fresh_model(workload, config, torch.device("cpu"))
    spec = workload.optimizer(config)
    if spec.name == "sgd":
        optimizer = torch.optim.SGD(model.parameters(), lr=spec.learning_rate, momentum=spec.momentum)
    else:
        optimizer = torch.optim.AdamW(model.parameters(), lr=spec.learning_rate, weight_decay=spec.weight_decay)

    def step(inputs: np.ndarray, targets: np.ndarray) -> torch.Tensor:
        optimizer.zero_grad()
        logits = model(torch.from_numpy(inputs))
        loss = functional.cross_entropy(logits.flatten(0, -2), torch.from_numpy(targets).flatten())
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step
