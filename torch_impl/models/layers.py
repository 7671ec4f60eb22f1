"""Functions of torch by the names that our specs have for them."""

import functools

from torch.nn import functional

ACTIVATIONS = {"gelu": functional.gelu, "relu": functional.relu}

POOLINGS = {
    "average": functools.partial(functional.avg_pool2d, kernel_size=2),
    "max": functools.partial(functional.max_pool2d, kernel_size=2),
}
"""Poolings of [batch, channels, height, width]; each turns a 2x2 window into one number."""
