"""Keeps the standard outputs of a process open while it calls a user's code."""

import os
from collections.abc import Callable
from typing import TypeVar

from samestep.common.errors import ConfigError

_OUTPUTS = {1: "standard output", 2: "standard error"}
Returned = TypeVar("Returned")


def call_printing(function: Callable[..., Returned], *arguments: object) -> Returned:
    """Calls a user's code, which must leave the standard outputs open.

    A file or a connection that is opened later would get the file descriptor of a closed output, and everything that is printed.

    Args:
        function: The function to call.
        *arguments: The arguments of the call.

    Raises:
        ConfigError: The code closes standard output or standard error.
    """
    try:
        returned = function(*arguments)
    finally:
        closed = [name for number, name in _OUTPUTS.items() if _reopen(number)]
    if closed:
        raise ConfigError(f"it closes {' and '.join(closed)}, to which a run writes its log; leave out os.close().")
    return returned


def _reopen(number: int) -> bool:
    """Redirects a closed file descriptor to the null device; returns whether it was closed."""
    try:
        os.fstat(number)
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, number)
        if nowhere != number:
            os.close(nowhere)
        return True
    return False
