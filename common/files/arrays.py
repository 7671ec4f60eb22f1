"""Writes and reads `.npz` files. An array that somebody else wrote is measured before anything is allocated for it."""

import contextlib
import math
import os
import zipfile
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING

from samestep.common.files.reading import Unreadable, check_memory, open_plain

if TYPE_CHECKING:
    import numpy as np  # only where arrays are made: a prediction does not need it

MOST_INFLATION = 100
"""How many times as large as its file an archive may become. Images become five times as large, sparse ones twenty."""
SMALL_BYTES = 2**26
"""An archive that inflates to no more than this is accepted, however small it is."""
_ENCRYPTED = 1
"""The bit of a member's flags that says it is encrypted."""
_MAX_DIMS = 32
"""The most dimensions of an array: those of NumPy 1.26, though no array here has more than four."""


def save_arrays(file: IO[bytes], arrays: Mapping[str, object]) -> None:
    """Writes arrays as `np.savez` does, but also one called `file` or `allow_pickle`, which `savez` takes for its argument.

    Args:
        file: A file that is open for writing.
        arrays: What `np.asanyarray` takes, by name.
    """
    import numpy as np

    with zipfile.ZipFile(file, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asanyarray(array))


def read_arrays(path: Path | str, names: Collection[str] = ()) -> "dict[str, np.ndarray]":
    """Reads the arrays of a `.npz` file.

    Args:
        path: The file.
        names: The arrays to read if they exist; by default all. A name that ends with a slash stands for every array below it:
            `params/`.

    Raises:
        Unreadable: The file is damaged, or claims to hold more than it does or than this machine could.
    """
    with open_plain(path) as file, _one_kind_of_error():
        return load_arrays(file, names, os.fstat(file.fileno()).st_size)


def each_array(path: Path | str) -> "Iterator[tuple[str, np.ndarray]]":
    """Yields the name and the numbers of each array of a `.npz` file, one at a time, in the order of the names.

    Args:
        path: The file.

    Raises:
        Unreadable: As `read_arrays` raises it.
    """
    with open_plain(path) as file, _one_kind_of_error(), zipfile.ZipFile(file) as archive:
        members = _members(archive, (), os.fstat(file.fileno()).st_size)
        for name, info in sorted(members.items()):
            check_memory(8 * _measure(archive, name, info))
            yield name, _load(archive, info)


@contextlib.contextmanager
def _one_kind_of_error() -> Iterator[None]:
    try:
        yield
    except Unreadable:
        raise
    # On hostile bytes, zipfile, zlib, ast and NumPy raise a dozen kinds of errors, MemoryError among them.
    except Exception as error:
        raise Unreadable(f"it is damaged ({type(error).__name__})") from None


def load_arrays(file: IO[bytes], names: Collection[str], size: int) -> "dict[str, np.ndarray]":
    """Reads arrays as `read_arrays` does, from an open file; a damaged one may raise any error.

    Args:
        file: The archive.
        names: The arrays to read, as `read_arrays` takes them.
        size: The bytes of the file.
    """
    with zipfile.ZipFile(file) as archive:
        wanted = _members(archive, names, size)
        check_memory(8 * sum(_measure(archive, name, info) for name, info in wanted.items()))
        return {name: _load(archive, info) for name, info in wanted.items()}


def _members(archive: zipfile.ZipFile, names: Collection[str], size: int) -> dict[str, zipfile.ZipInfo]:
    """Returns the members with some names, as `read_arrays` takes them, of an archive of so many bytes."""
    members: dict[str, zipfile.ZipInfo] = {}
    for info in archive.infolist():
        if (name := info.filename.removesuffix(".npy")) in members:
            raise Unreadable(f"it has two arrays named {name}")
        members[name] = info
    folders = tuple(name for name in names if name.endswith("/"))
    wanted = {name: info for name, info in members.items() if not names or name in names or name.startswith(folders)}
    if sum(info.file_size for info in wanted.values()) > max(SMALL_BYTES, MOST_INFLATION * size):
        raise Unreadable(f"it inflates to more than {MOST_INFLATION} times its size")
    return wanted


def _measure(archive: zipfile.ZipFile, name: str, info: zipfile.ZipInfo) -> int:
    """Returns the number of elements that a member's header claims, after checking that the member is that large."""
    if info.flag_bits & _ENCRYPTED or info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise Unreadable(f"{name} is encrypted or compressed in a way that numpy.savez does not use")
    from numpy.lib import format as npy

    # Version 3 is for structured arrays only, and nothing here is one.
    headers = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
    with archive.open(info) as member:
        version = npy.read_magic(member)
        if version not in headers:
            raise Unreadable(f"{name} is not an array")
        shape, _, dtype = headers[version](member)
        if dtype.hasobject or dtype.names is not None:
            raise Unreadable(f"{name} holds objects, not numbers")
        count = math.prod(shape)
        if len(shape) > _MAX_DIMS or any(size < 0 for size in shape):
            raise Unreadable(f"{name} has a shape that no array has")
        if (held := info.file_size - member.tell()) != count * dtype.itemsize:
            raise Unreadable(f"{name} claims {count * dtype.itemsize} bytes and holds {held}")
        return count


def _load(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> "np.ndarray":
    from numpy.lib import format as npy

    with archive.open(info) as member:
        return npy.read_array(member, allow_pickle=False)
