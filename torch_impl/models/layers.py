"""What torch has under several names, by the names of our specs."""

import torch
from torch.nn import functional


def activate(name: str, x: torch.Tensor) -> torch.Tensor:
    """Applies an activation.

    Args:
        name: A name in `ACTIVATIONS`.
        x: An array of any shape.
    """
    return {"gelu": functional.gelu, "relu": functional.relu}[name](x)


def pool(name: str, x: torch.Tensor) -> torch.Tensor:
    """Takes one number of each 2x2 window.

    Args:
        name: A name in `POOLINGS`.
        x: [batch, channels, height, width].
    """
    return {"average": functional.avg_pool2d, "max": functional.max_pool2d}[name](x, 2)
