"""`.safetensors`: a header of JSON, then the bytes of every array. The format is simple enough to be read and written here.

References:
    https://huggingface.co/docs/safetensors, "Format".
"""

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from samestep.common.files.reading import Unreadable, check_memory, open_plain, parse_json
from samestep.common.files.writing import replacing

SUFFIX = ".safetensors"
_DTYPES = {
    **{"F64": "<f8", "F32": "<f4", "F16": "<f2", "BOOL": "|b1"},
    **{"I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "|i1", "U8": "|u1"},
}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}
_HALF_A_FLOAT = "BF16"
_MOST_HEADER_BYTES = 2**26


def write_safetensors(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Writes arrays into a file, which replaces an existing one.

    Args:
        path: The file.
        arrays: The arrays, by name.
    """
    header, end, data = {}, 0, []
    for name, array in sorted(arrays.items()):
        data.append(np.ascontiguousarray(array))
        header[name] = {
            "dtype": _NAMES[data[-1].dtype.newbyteorder("<").str],
            "shape": list(array.shape),
            "data_offsets": [end, end := end + array.nbytes],
        }
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    text += b" " * (-len(text) % 8)
    with replacing(path, is_users=True) as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for array in data:
            file.write(array.tobytes())


def read_safetensors(path: Path) -> dict[str, np.ndarray]:
    """Reads arrays; bfloat16 becomes float32, which is exact.

    Args:
        path: The file.

    Raises:
        Unreadable: The file is damaged, or claims to hold more than it does or than this machine could.
    """
    with open_plain(path) as file:
        size = os.fstat(file.fileno()).st_size
        check_memory(size)
        length = int.from_bytes(file.read(8), "little")
        if not 0 < length <= min(size - 8, _MOST_HEADER_BYTES):
            raise Unreadable(f"its header claims {length} bytes")
        header, data = parse_json(file.read(length)), file.read()
    if not isinstance(header, dict):
        raise Unreadable("its header is not an object")
    return {str(name): _array(str(name), said, data) for name, said in header.items() if name != "__metadata__"}


def _array(name: str, said: object, data: bytes) -> np.ndarray:
    try:
        kind, shape, (start, end) = (said[key] for key in ("dtype", "shape", "data_offsets"))  # pyrefly: ignore
        dtype = np.dtype("<u2" if kind == _HALF_A_FLOAT else _DTYPES[kind])
        count = math.prod(shape)
        if min((0, *shape)) < 0 or not 0 <= start <= end <= len(data) or end - start != count * dtype.itemsize:
            raise Unreadable(f"its header claims bytes for {name} that are not there")
        array = np.frombuffer(data, dtype, count, start).reshape(shape)
    except (TypeError, KeyError, ValueError):
        raise Unreadable(f"its header has no valid entry for {name}") from None
    return widened(array) if kind == _HALF_A_FLOAT else array


def widened(halves: np.ndarray) -> np.ndarray:
    """Converts the bits of bfloat16 numbers to float32, which is exact."""
    return (halves.astype(np.uint32) << 16).view(np.float32)
