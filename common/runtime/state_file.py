"""`state.npz`: a TrainState on disk."""

import os
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from samestep.common.errors import ConfigError
from samestep.common.program import Arrays, TrainState

_UNREADABLE = (OSError, EOFError, ValueError, KeyError, TypeError, zipfile.BadZipFile, zlib.error)


def write_state(directory: Path, state: TrainState) -> None:
    """Writes `state.npz` whole or not at all.

    Args:
        directory: The run directory.
        state: Of the whole model.
    """
    nested = {"params": state.params, "buffers": state.buffers}
    nested |= {f"slots/{slot}": values for slot, values in state.slots.items()}
    nested |= {f"local/{rank}": values for rank, values in enumerate(state.local)}
    arrays = {f"{group}/{name}": value for group, values in nested.items() for name, value in values.items()}
    temporary = directory / f"state.npz.{os.getpid()}.tmp"
    with temporary.open("wb") as file:
        np.savez(file, step=np.int64(state.step), **arrays)  # pyrefly: ignore
    os.replace(temporary, directory / "state.npz")


def read_state(directory: Path) -> TrainState:
    """Reads `state.npz`.

    Raises:
        ConfigError: The directory holds none.
    """
    try:
        # opened here: numpy leaves a damaged file open
        with (directory / "state.npz").open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            return _unflatten({name: file[name] for name in file.files})
    except _UNREADABLE as error:
        raise ConfigError(
            f"--start-from {directory}: no readable state.npz ({type(error).__name__}); give the directory of a "
            "finished run."
        ) from None


def _unflatten(arrays: Mapping[str, np.ndarray]) -> TrainState:
    params, buffers, slots, local = {}, {}, dict[str, Arrays](), dict[int, Arrays]()
    for path, value in arrays.items():
        group, _, name = path.partition("/")
        if group == "slots":
            slot, _, name = name.partition("/")
            slots.setdefault(slot, {})[name] = value
        elif group == "local":
            rank, _, name = name.partition("/")
            local.setdefault(int(rank), {})[name] = value
        elif group in ("params", "buffers"):
            {"params": params, "buffers": buffers}[group][name] = value
    ranks = tuple(local.get(rank, {}) for rank in range(max(local, default=-1) + 1))
    return TrainState(int(arrays["step"]), params, slots, buffers, ranks)
