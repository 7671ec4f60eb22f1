"""The inputs of a model: a tensor, or several by name."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch.utils._pytree import tree_leaves

from samestep.common.workload.data.several import each

Inputs = torch.Tensor | Mapping[str, torch.Tensor]
"""One input, or several by name, which a user model takes as keyword arguments."""


def as_inputs(array: np.ndarray, device: torch.device | None = None) -> Any:
    """Returns the inputs of a model, converted from the array of a batch.

    Args:
        array: [batch, ...]; a structured array holds several inputs.
        device: The device to copy the inputs to; None stands for the CPU.
    """
    return each(array, lambda one: torch.from_numpy(one).to(device, non_blocking=True))


def tensors(tree: object) -> list[torch.Tensor]:
    """Returns the tensors of a tree, such as arguments or results, in order."""
    return [each for each in tree_leaves(tree) if isinstance(each, torch.Tensor)]
