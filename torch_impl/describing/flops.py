"""Counts the FLOPs of a whole forward pass.

`FlopCounterMode` distinguishes modules by gradient hooks. Without gradients, these fail if a parameter, such as learned
queries, is passed to a module (torch 2.13).
"""

import contextlib

from torch.utils.flop_counter import FlopCounterMode


class _Anywhere(contextlib.nullcontext):
    """Takes the place of the tracker of modules; everything counts as within the model."""

    parents = frozenset({"Global"})


class FlopCounter(FlopCounterMode):
    """A context that counts FLOPs; `get_total_flops` returns the count."""

    def __init__(self) -> None:
        """Starts the count at zero."""
        super().__init__(display=False)
        self.mod_tracker = _Anywhere()  # pyrefly: ignore
