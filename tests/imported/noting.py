"""A package of the user's: it notes which process imported it, and has taken a function of torch by its name."""

import os

from torch import randn

IMPORTED_IN = os.getpid()
ASKED = os.environ.get("NOTING", "")


def where() -> str:
    return f"imported {'here' if os.getpid() == IMPORTED_IN else 'before'}, asked for {ASKED or 'nothing'}"


def noise(like):
    return randn(like.shape, dtype=like.dtype)
