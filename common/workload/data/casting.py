"""Casts data to the dtype of a run."""

import dataclasses

import numpy as np

from samestep.common.workload.data.dataset import Split
from samestep.common.workload.data.several import apart, together


def in_dtype(split: Split, dtype: str) -> Split:
    """Casts the real numbers of a data set to a dtype; ids stay int64.

    Args:
        split: The data set.
        dtype: The name of the dtype.
    """

    def cast(array: np.ndarray) -> np.ndarray:
        if array.dtype.names is not None:
            return together({name: cast(one) for name, one in apart(array).items()})
        return array.astype(dtype, copy=False) if array.dtype.kind == "f" else array

    return Split(**{field.name: cast(getattr(split, field.name)) for field in dataclasses.fields(split)})
