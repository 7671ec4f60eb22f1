"""The types of arrays, for annotations in modules that must not import NumPy, because `--help` and predictions do not."""

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import numpy as np

Array: TypeAlias = "np.ndarray"
Arrays: TypeAlias = "dict[str, np.ndarray]"
