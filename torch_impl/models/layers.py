"""What torch has under several names, by the names of our specs."""

import functools

from torch.nn import functional

ACTIVATIONS = {"gelu": functional.gelu, "relu": functional.relu}

POOLINGS = {
    "average": functools.partial(functional.avg_pool2d, kernel_size=2),
    "max": functools.partial(functional.max_pool2d, kernel_size=2),
}
"""Each takes [batch, channels, height, width], and makes one number of each 2x2 window."""
