"""`state-rank-2.npz`: the pieces of a state that one rank saved, each keyed by its path, its offset and the whole shape."""

import math
import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import IO

import numpy as np

from samestep.common.files.arrays import read_arrays, save_arrays
from samestep.common.files.reading import Unreadable
from samestep.common.program import StatePiece, TrainState
from samestep.common.runtime.state_file import unflatten

_KEY = re.compile(r"(?P<path>.+)@(?P<offset>[0-9,]*):(?P<shape>[0-9,]*)")


def name_of(rank: int) -> str:
    """Returns the name of the file of a rank."""
    return f"state-rank-{rank}.npz"


def dump_pieces(file: IO[bytes], pieces: Sequence[StatePiece]) -> None:
    """Writes the pieces that a rank saves.

    Args:
        file: A file that is open for writing, at its beginning.
        pieces: The pieces.
    """
    arrays = {f"{each.path}@{_spell(each.offset)}:{_spell(each.shape)}": each.array for each in pieces}
    save_arrays(file, arrays)


def _spell(numbers: tuple[int, ...]) -> str:
    return ",".join(map(str, numbers))


def read_pieces(folder: Path, names: Collection[str]) -> TrainState:
    """Reads the files of all ranks and puts the state together again.

    Args:
        folder: The folder of the files.
        names: The names of the files.

    Raises:
        Unreadable: A file is damaged, or the files together do not hold each number of each array exactly once.
    """
    by_path: dict[str, list[StatePiece]] = {}
    for name in names:
        for key, array in read_arrays(folder / name).items():
            piece = _piece(name, key, array)
            by_path.setdefault(piece.path, []).append(piece)
    return unflatten({path: _joined(path, pieces) for path, pieces in by_path.items()})


def _piece(name: str, key: str, array: np.ndarray) -> StatePiece:
    if (found := _KEY.fullmatch(key)) is None:
        raise Unreadable(f"{name}: {key} is not a piece of an array")
    offset, shape = (tuple(int(n) for n in found[each].split(",") if n) for each in ("offset", "shape"))
    ends = [start + size for start, size in zip(offset, array.shape, strict=False)]
    if not len(offset) == len(shape) == array.ndim or any(end > size for end, size in zip(ends, shape, strict=True)):
        raise Unreadable(f"{name}: {key} does not lie within its array")
    return StatePiece(found["path"], offset, shape, array)


def _joined(path: str, pieces: Sequence[StatePiece]) -> np.ndarray:
    """Makes an array from its pieces."""
    first = pieces[0]
    if len({(piece.shape, piece.array.dtype.str) for piece in pieces}) > 1:
        raise Unreadable(f"its pieces of {path} are of arrays with different shapes or dtypes")
    wanted, held = math.prod(first.shape), sum(piece.array.size for piece in pieces)
    if held < wanted:
        raise Unreadable(f"it has {held} of the {wanted} numbers of {path}: a rank's file is missing")
    whole, covered = np.empty(first.shape, first.array.dtype), np.zeros(first.shape, bool)
    for piece in pieces:
        box = tuple(slice(start, start + size) for start, size in zip(piece.offset, piece.array.shape, strict=True))
        whole[box], covered[box] = piece.array, True
    if held > wanted or not covered.all():
        raise Unreadable(f"its pieces of {path} overlap")
    return whole
