"""The message about a process that asked for more memory than it may have."""

import resource

from samestep.common.errors import Unavailable
from samestep.common.ledger import gib
from samestep.common.strategy import Run

_SIGNS = (
    "can't allocate memory",
    "cannot allocate memory",
    "unable to allocate",
    "out of memory",
    "bad_alloc",
    "oom when",
)
"""Phrases with which NumPy, torch, TensorFlow and C++ report a lack of memory, in lower case."""
_LIMITS = {"RLIMIT_DATA": resource.RLIMIT_DATA, "RLIMIT_AS": resource.RLIMIT_AS}


def is_shortage(error: BaseException) -> bool:
    """Returns whether an exception says that memory was refused."""
    said = str(error).lower()
    return isinstance(error, MemoryError) or any(sign in said for sign in _SIGNS)


def shortage(run: Run, role: str) -> Unavailable:
    """Returns the error of a process that was refused memory: the limit, the least that the run needs, and what to do.

    Args:
        run: The run.
        role: The role of the process.
    """
    limits = [f"{name} {gib(soft)}" for name, kind in _LIMITS.items() if (soft := _soft(kind)) is not None]
    under = f" ({', '.join(limits)})" if limits else ""
    needed = run.strategy.cost(run, run.strategy.backend).state_bytes or 0
    return Unavailable(
        f"{role} ran out of memory{under}: on each device parameters, gradients and optimizer state alone need {gib(needed)}, "
        f"in addition to the framework itself; allow more, or choose a smaller model, more devices, or a strategy that splits "
        "the model."
    )


def _soft(kind: int) -> int | None:
    soft, _ = resource.getrlimit(kind)
    return None if soft == resource.RLIM_INFINITY else soft
