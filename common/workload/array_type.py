"""The type of arrays, for annotations in modules that import no NumPy: `--help` and predictions do without it."""

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import numpy as np

Array: TypeAlias = "np.ndarray"
Arrays: TypeAlias = "dict[str, np.ndarray]"
