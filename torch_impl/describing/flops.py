"""Counts the FLOPs of a whole forward pass.

`FlopCounterMode` tells modules apart by hooks for gradients, which fail without gradients where a module is given a parameter,
such as learned queries (torch 2.13).
"""

from torch.utils.flop_counter import FlopCounterMode


class _Anywhere:
    """Stands for the tracker of modules: everything is within the model."""

    parents = frozenset({"Global"})

    def __enter__(self) -> None:
        """Follows nothing."""

    def __exit__(self, *_: object) -> None:
        """Has followed nothing."""


class FlopCounter(FlopCounterMode):
    """Counts while it is entered; `get_total_flops` returns the count."""

    def __init__(self) -> None:
        """Counts nothing yet."""
        super().__init__(display=False)
        self.mod_tracker = _Anywhere()  # pyrefly: ignore
