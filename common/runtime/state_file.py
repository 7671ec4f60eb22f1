"""`state.npz`: a TrainState on disk, or as bytes on the wire. It contains no pickles."""

import hashlib
import io
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import IO

import numpy as np

from samestep.common.errors import ConfigError
from samestep.common.files.arrays import each_array, load_arrays, read_arrays, save_arrays
from samestep.common.files.reading import Unreadable
from samestep.common.files.writing import replacing
from samestep.common.flags import MAX_STEPS, FieldValues
from samestep.common.program import SKIPPED, Arrays, TrainState

STATE = "state.npz"


def write_state(directory: Path, state: TrainState) -> None:
    """Writes `state.npz` whole or not at all.

    Args:
        directory: The run directory.
        state: The state of the whole model.
    """
    with replacing(directory / STATE) as file:
        dump_state(file, state)


def to_bytes(state: TrainState) -> bytes:
    """Returns the bytes of a `state.npz`."""
    file = io.BytesIO()
    dump_state(file, state)
    return file.getvalue()


def from_bytes(data: bytes) -> TrainState:
    """Inverts `to_bytes`."""
    return unflatten(load_arrays(io.BytesIO(data), (), len(data)))


def dump_state(file: IO[bytes], state: TrainState) -> None:
    """Writes a state in the format of `state.npz`.

    Args:
        file: A file that is open for writing, at its beginning.
        state: The state of the whole model.
    """
    nested: dict[str, Mapping[str, object]] = {"params": state.params, "buffers": state.buffers}
    nested |= {f"slots/{slot}": values for slot, values in state.slots.items()}
    nested |= {f"local/{rank}": values for rank, values in enumerate(state.local)}
    nested["counts"] = {name: np.int64(count) for name, count in state.counts.items()}
    arrays: FieldValues = {f"{group}/{name}": each for group, values in nested.items() for name, each in values.items()}
    if state.skipped:  # few states have it, and earlier versions cannot read it
        arrays["skipped"] = np.int64(state.skipped)
    save_arrays(file, {"step": np.int64(state.step), **arrays})


def read_state(directory: Path, asked: str = "--start-from", names: Collection[str] = ()) -> TrainState:
    """Reads `state.npz`.

    Args:
        directory: The run directory.
        asked: The flag that named it, for messages.
        names: The arrays to read, as `read_arrays` takes them; by default all. The state lacks the others.

    Raises:
        ConfigError: The directory holds no readable state.
    """
    try:
        return unflatten(read_arrays(directory / STATE, names))
    except Unreadable as error:
        raise ConfigError(
            f"{asked} {directory}: no readable state.npz: {error}; give a checkpoint, or the directory of a finished run "
            "with --keep-state."
        ) from None


def digest_state(directory: Path) -> str:
    """Returns the SHA-256 digest of a run's state, including names, dtypes and shapes; "" if no state can be read here.

    Only one of its arrays is in memory at a time.
    """
    digest = hashlib.sha256()
    try:
        for name, array in each_array(directory / STATE):
            digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
            digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    except Unreadable:  # there is none, or it is larger than the memory
        return ""
    return digest.hexdigest()


def unflatten(arrays: Mapping[str, np.ndarray]) -> TrainState:
    """Makes a state from its arrays by path, as in `params/hidden/kernel`.

    Raises:
        Unreadable: An array is not part of a state.
    """
    params, buffers, slots, local, counts = {}, {}, dict[str, Arrays](), dict[int, Arrays](), dict[str, int]()
    for path, value in arrays.items():
        group, _, name = path.partition("/")
        if value.dtype.kind not in "biuf":
            raise Unreadable(f"{path} holds {value.dtype}, not real numbers")
        if group == "slots":
            slot, _, name = name.partition("/")
            slots.setdefault(slot, {})[name] = value
        elif group == "local":
            rank, _, name = name.partition("/")
            local.setdefault(_whole(path, rank), {})[name] = value
        elif group == "counts":
            counts[name] = _count(path, value)
        elif group in ("params", "buffers"):
            {"params": params, "buffers": buffers}[group][name] = value
        elif path not in ("step", "skipped"):
            raise Unreadable(f"{path} is not part of a state")
    ranks = tuple(local.get(rank, {}) for rank in range(max(local, default=-1) + 1))
    # Files of earlier versions have a list of the skipped steps in the local state of each rank.
    skipped = arrays.get("skipped", np.int64(len(ranks[0].get(SKIPPED, ())) if ranks else 0))
    step = _count("step", arrays.get("step"))
    return TrainState(step, params, slots, buffers, ranks, _count("skipped", skipped, step), counts)


def _whole(path: str, rank: str) -> int:
    if not re.fullmatch("[0-9]{1,5}", rank):
        raise Unreadable(f"{path} names no rank")
    return int(rank)


def _count(name: str, value: np.ndarray | np.integer | None, most: int = MAX_STEPS) -> int:
    if value is None or value.shape != () or value.dtype.kind not in "iu" or not 0 <= value <= most:
        raise Unreadable(f"its {name} is {value}, not one whole number from 0 to {most}")
    return int(value)
