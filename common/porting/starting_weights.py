"""The weights that a trace starts from, in a file: `params/NAME` and `buffers/NAME`, by the framework's own neutral names."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from samestep.common.files.arrays import read_arrays
from samestep.common.frameworks import conventions
from samestep.common.workload.models.description import write_initial

_FILE = "weights.npz"


def saved_weights(folder: Path, framework: str) -> Path:
    """Returns the file to which a framework's own writer saves the weights.

    Args:
        folder: The folder of the trace.
        framework: The framework.
    """
    return folder / f"saved{conventions(framework).weights_suffix}"


def write_weights(folder: Path, params: Mapping[str, np.ndarray], buffers: Mapping[str, np.ndarray]) -> None:
    """Writes the weights that a trace starts from.

    Args:
        folder: The folder of the trace.
        params: The params by the framework's own neutral names.
        buffers: The buffers by the framework's own neutral names.
    """
    write_initial(folder / _FILE, params, buffers)


def read_weights(folder: Path) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Reads the parameters and the buffers that a trace starts from."""
    arrays = read_arrays(folder / _FILE)
    params, buffers = (
        {name.removeprefix(f"{kind}/"): value for name, value in arrays.items() if name.startswith(f"{kind}/")}
        for kind in ("params", "buffers")
    )
    return params, buffers
