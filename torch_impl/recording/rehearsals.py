"""Calls of a script that belong to no step: calls that are traced, and tensors that have no data.

`torch.jit.trace` would make what a hook computes part of the trace. Tensors on the device "meta" and those of a FakeTensorMode
have shapes only: scripts build large models of them, or estimate how much memory a step takes.
"""

import contextlib
from collections.abc import Iterator

import torch
from torch.optim import Optimizer
from torch.utils._python_dispatch import _disable_current_modes

from samestep.torch_impl.recording.pieces import has_no_numbers
from samestep.torch_impl.recording.tensors import has_gradient


def is_rehearsed(optimizer: Optimizer, has_begun: bool) -> bool:
    """Returns whether an optimizer takes no step.

    Args:
        optimizer: It is about to update its parameters, or has.
        has_begun: Whether there was a pass; before the first, wrappers let an optimizer make its state.
    """
    first = next((each["params"][0] for each in optimizer.param_groups if each["params"]), None)
    if first is not None and has_no_numbers(first):
        return True
    return not has_begun and not has_gradient(optimizer)


@contextlib.contextmanager
def unobserved() -> Iterator[None]:
    """Hides what is computed from the modes of the script, which may count or print it."""
    with torch._C.DisableTorchFunction(), _disable_current_modes():
        yield
