"""Reads a directory of `torch.distributed.checkpoint` without torch, and without unpickling anything.

`.metadata` is a pickle: the shape of each tensor, its pieces, and where in which file each piece is. A piece is a zip file that
`torch.save` wrote: a pickle again, and the bytes.

References:
    torch 2.13: torch/distributed/checkpoint/metadata.py, filesystem.py; torch/serialization.py.
"""

import io
import math
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from samestep.common.files.reading import Unreadable, check_memory, open_plain, read_bytes
from samestep.common.files.safetensors import widened
from samestep.common.files.symbols import read_symbols, symbol, whole_numbers

METADATA = ".metadata"
_MOST_METADATA_BYTES = 2**26
_HALF_A_FLOAT = "bfloat16"
_DTYPES = {
    "float64": "<f8",
    "float32": "<f4",
    "float16": "<f2",
    _HALF_A_FLOAT: "<u2",
    "int64": "<i8",
    "int32": "<i4",
    "int16": "<i2",
    "int8": "|i1",
    "uint8": "|u1",
    "bool": "|b1",
}
_STORAGES = {
    "DoubleStorage": "float64",
    "FloatStorage": "float32",
    "HalfStorage": "float16",
    "BFloat16Storage": _HALF_A_FLOAT,
    "LongStorage": "int64",
    "IntStorage": "int32",
    "ShortStorage": "int16",
    "CharStorage": "int8",
    "ByteStorage": "uint8",
    "BoolStorage": "bool",
}
_Place = tuple[str, int, int]
"""File, offset, length."""


def read_dcp(folder: Path) -> dict[str, np.ndarray]:
    """Reads the tensors of a directory, and the whole numbers; other objects are left out.

    Args:
        folder: The directory.

    Returns:
        The arrays by name, such as `model.layers.0.weight`; bfloat16 becomes float32.

    Raises:
        Unreadable: A file is damaged or missing, or claims to hold more than this machine could.
    """
    try:
        said = symbol(read_symbols(read_bytes(folder / METADATA, _MOST_METADATA_BYTES)), "Metadata").state
        places = {_index(key): _place(value) for key, value in said["storage_data"].items()}  # pyrefly: ignore
        kinds = said["state_dict_metadata"]  # pyrefly: ignore
        tensors = {str(name): each.state for name, each in kinds.items() if each.name.endswith("TensorStorageMetadata")}
        check_memory(8 * sum(math.prod(whole_numbers(each["size"])) for each in tensors.values()))
        found = {name: _joined(folder, name, each, places) for name, each in tensors.items()}
        numbers = {str(name): _number(folder, places.get((str(name), ()))) for name in kinds if name not in tensors}
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise Unreadable(f"its {METADATA} is not what torch writes ({type(error).__name__})") from None
    return found | {name: number for name, number in numbers.items() if number is not None}


def _index(key: object) -> tuple[str, tuple[int, ...]]:
    said: dict = symbol(key, "MetadataIndex").state  # pyrefly: ignore
    return str(said["fqn"]), () if said.get("offset") is None else whole_numbers(said["offset"])


def _place(value: object) -> _Place:
    said: dict = symbol(value, "_StorageInfo").state  # pyrefly: ignore
    if said.get("transform_descriptors"):
        raise Unreadable("its tensors are compressed, or transformed in another way; save them without extensions")
    (offset, length), name = whole_numbers([said["offset"], said["length"]]), str(said["relative_path"])
    if os.path.basename(name) != name:
        raise Unreadable(f"it names a file outside of it: {name}")
    return name, offset, length


def _joined(folder: Path, name: str, said: Mapping[str, object], places: Mapping) -> np.ndarray:
    """Makes a tensor from its pieces, each of which covers a box of it."""
    shape, dtype = whole_numbers(said["size"]), _dtype(said["properties"])
    whole, covered = np.empty(shape, np.dtype(_DTYPES[dtype])), 0
    for chunk in said["chunks"]:  # pyrefly: ignore
        box: dict = symbol(chunk, "ChunkStorageMetadata").state  # pyrefly: ignore
        offset, sizes = whole_numbers(box["offsets"]), whole_numbers(box["sizes"])
        inside = tuple(slice(start, start + size) for start, size in zip(offset, sizes, strict=True))
        if len(offset) != len(shape) or any(each.stop > size for each, size in zip(inside, shape, strict=True)):
            raise Unreadable(f"a piece of {name} does not lie within it")
        piece = _tensor(_zip(folder, places[name, offset]))
        if piece.shape != sizes or piece.dtype != whole.dtype:
            raise Unreadable(f"a piece of {name} has another shape or dtype than {METADATA} says")
        whole[inside] = piece
        covered += piece.size
    if covered != whole.size:
        raise Unreadable(f"its pieces have {covered} of the {whole.size} numbers of {name}")
    return widened(whole) if dtype == _HALF_A_FLOAT else whole


def _dtype(properties: object) -> str:
    kind = symbol(properties, "TensorProperties").state[0]  # pyrefly: ignore
    name = kind.name.rpartition(".")[2]
    if name not in _DTYPES:
        raise Unreadable(f"it holds {name}, which is not read")
    return name


def _zip(folder: Path, place: _Place) -> zipfile.ZipFile:
    name, offset, length = place
    with open_plain(folder / name) as file:
        if offset + length > os.fstat(file.fileno()).st_size:
            raise Unreadable(f"{name} ends before what {METADATA} says is in it")
        file.seek(offset)
        data = io.BytesIO(file.read(length))
    try:
        return zipfile.ZipFile(data)
    except zipfile.BadZipFile:
        raise Unreadable(f"{name} is damaged") from None


def _member(archive: zipfile.ZipFile, end: str) -> bytes:
    """Reads a member of an archive; torch compresses none."""
    (info,) = (each for each in archive.infolist() if each.filename.partition("/")[2] == end)
    if info.compress_type != zipfile.ZIP_STORED:
        raise Unreadable("it is compressed, which torch does not do")
    try:
        return archive.read(info)
    except (zipfile.BadZipFile, EOFError, RuntimeError):
        raise Unreadable(f"a tensor's {end} is damaged") from None


def _tensor(archive: zipfile.ZipFile) -> np.ndarray:
    """Reads a tensor that `torch.save` wrote."""
    made = symbol(read_symbols(_member(archive, "data.pkl")), "_rebuild_tensor_v2")
    (_, storage, key, _, count), offset, size, stride, *_ = made.arguments  # pyrefly: ignore
    data = _member(archive, f"data/{key}")
    values = np.frombuffer(data, _DTYPES[_STORAGES[storage.name.rpartition(".")[2]]])
    shape, strides = whole_numbers(size), whole_numbers(stride)
    (start, held) = whole_numbers([offset, count])
    last = start + sum((length - 1) * step for length, step in zip(shape, strides, strict=True))
    if held != values.size or (math.prod(shape) and last >= held):
        raise Unreadable("a tensor does not lie within its storage")
    steps = [step * values.itemsize for step in strides]
    return np.lib.stride_tricks.as_strided(values[start:], shape, steps, writeable=False)


def _number(folder: Path, place: _Place | None) -> np.ndarray | None:
    """Reads an object that is not a tensor, if it is a whole number; an optimizer's state has many other objects."""
    if place is None:
        return None
    found = read_symbols(_member(_zip(folder, place), "data.pkl"))
    return np.asarray(found) if type(found) is int and abs(found) < 2**63 else None
