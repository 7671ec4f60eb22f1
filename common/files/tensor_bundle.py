"""Reads a checkpoint of TensorFlow without TensorFlow: a sorted table of names, and files of bytes next to it.

References:
    tensorflow/core/util/tensor_bundle/tensor_bundle.h, core/protobuf/tensor_bundle.proto; LevelDB, doc/table_format.md.
"""

import math
import os
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from samestep.common.files.reading import Unreadable, memory_bytes, open_plain, read_bytes
from samestep.common.files.safetensors import widened

LATEST = "checkpoint"
"""The file that names the newest checkpoint of a folder."""
_VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"
_MOST_INDEX_BYTES = 2**26
_MAGIC = 0xDB4775248B80FB57.to_bytes(8, "little")
_FOOTER_BYTES, _TRAILER_BYTES = 48, 5
_HALF_A_FLOAT = 14
_DTYPES = {1: "<f4", 2: "<f8", 3: "<i4", 4: "|u1", 5: "<i2", 6: "|i1", 9: "<i8", 10: "|b1", 19: "<f2"} | {
    _HALF_A_FLOAT: "<u2"
}
"""Number of a `DataType` -> NumPy's dtype."""
Fields = dict[int, list[int | bytes]]


def latest(folder: Path) -> Path:
    """Returns the prefix of the newest checkpoint in a folder, as `tf.train.latest_checkpoint` does.

    Raises:
        Unreadable: There is none.
    """
    named = re.search(rb'^model_checkpoint_path: "([^"\\/]+)"$', read_bytes(folder / LATEST), re.MULTILINE)
    if named is None:
        raise Unreadable(f"its file {LATEST} names no checkpoint in the same folder")
    return folder / os.fsdecode(named[1])


def read_tensor_bundle(prefix: Path) -> dict[str, np.ndarray]:
    """Reads the variables of a checkpoint that are numbers.

    Args:
        prefix: The path with which its files begin, as in `ckpt-1`.

    Returns:
        The variables by their paths among the objects, such as `model/layers/0/kernel`.

    Raises:
        Unreadable: A file is damaged or missing, or claims to hold more than this machine could.
    """
    index = f"{prefix.name}.index"
    try:
        entries = dict(_entries(read_bytes(prefix.with_name(index), _MOST_INDEX_BYTES)))
        shards = _one(_fields(entries.pop("")), 1)
        wanted = {name.removesuffix(_VALUE): _fields(each) for name, each in entries.items() if name.endswith(_VALUE)}
        return {name: _array(prefix, name, each, shards) for name, each in wanted.items() if _one(each, 1) in _DTYPES}
    except (KeyError, IndexError, ValueError, TypeError) as error:
        raise Unreadable(f"{index} is not what TensorFlow writes ({type(error).__name__})") from None


def _array(prefix: Path, name: str, said: Fields, shards: int) -> np.ndarray:
    """Reads a variable."""
    kind, shard, offset, size = (_one(said, number) for number in (1, 3, 4, 5))
    shape = tuple(_one(_fields(each), 1) for each in _fields(_bytes(said, 2)).get(2, []))  # pyrefly: ignore[bad-argument-type]
    dtype = np.dtype(_DTYPES[kind])
    if 7 in said:
        raise Unreadable(f"{name} is cut into slices, which are not read")
    if size != math.prod(shape) * dtype.itemsize or size > memory_bytes():
        raise Unreadable(f"{name} claims {size} bytes")
    data = f"{prefix.name}.data-{shard:05d}-of-{shards:05d}"
    with open_plain(prefix.with_name(data)) as file:
        if offset + size > os.fstat(file.fileno()).st_size:
            raise Unreadable(f"{data} ends before {name}")
        file.seek(offset)
        array = np.frombuffer(file.read(size), dtype).reshape(shape)
    return widened(array) if kind == _HALF_A_FLOAT else array


def _entries(table: bytes) -> Iterator[tuple[str, bytes]]:
    """Yields the keys and values of a table, which are found from its last bytes."""
    if len(table) < _FOOTER_BYTES or table[-len(_MAGIC) :] != _MAGIC:
        raise ValueError
    footer = table[-_FOOTER_BYTES:]
    _, place = _handle(footer, 0)
    (start, size), _ = _handle(footer, place)
    for _, handle in _block(table, start, size):
        yield from ((key.decode(), value) for key, value in _block(table, *_handle(handle, 0)[0]))


def _handle(data: bytes, place: int) -> tuple[tuple[int, int], int]:
    """Reads where a block begins and how long it is; returns both, and the place after them."""
    start, place = _varint(data, place)
    size, place = _varint(data, place)
    return (start, size), place


def _block(table: bytes, start: int, size: int) -> Iterator[tuple[bytes, bytes]]:
    """Yields the keys and values of a block. Each key is stored as a length that it shares with the one before, and a rest."""
    if start + size + _TRAILER_BYTES > len(table) or table[start + size]:
        raise Unreadable("its index is torn or compressed")
    block, key, place = table[start : start + size], b"", 0
    restarts = int.from_bytes(block[-4:], "little")
    end = size - 4 * (restarts + 1)
    while place < end:
        shared, place = _varint(block, place)
        own, place = _varint(block, place)
        length, place = _varint(block, place)
        key = key[:shared] + block[place : place + own]
        yield key, block[place + own : (place := place + own + length)]


def _varint(data: bytes, place: int) -> tuple[int, int]:
    """Reads a number stored with seven bits in each byte; returns it, and the place after it."""
    value = shift = 0
    while (byte := data[place]) & 0x80:
        value, shift, place = value | (byte & 0x7F) << shift, shift + 7, place + 1
        if shift > 63:
            raise ValueError
    return value | byte << shift, place + 1


def _fields(message: bytes) -> Fields:
    """Reads the fields of a protocol buffer by number: whole numbers, and bytes."""
    found: Fields = {}
    place = 0
    while place < len(message):
        tag, place = _varint(message, place)
        kind, value = tag & 7, b""
        if kind == 0:
            value, place = _varint(message, place)
        elif kind == 2:
            size, place = _varint(message, place)
            value, place = message[place : place + size], place + size
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
            value, place = message[place : place + size], place + size
        else:
            raise ValueError
        found.setdefault(tag >> 3, []).append(value)
    return found


def _one(fields: Fields | bytes, number: int) -> int:
    """Reads a number, which is 0 if it is left out."""
    value = (fields if isinstance(fields, dict) else _fields(fields)).get(number, [0])[-1]
    if not isinstance(value, int):
        raise ValueError
    return value


def _bytes(fields: Fields, number: int) -> bytes:
    value = fields.get(number, [b""])[-1]
    if not isinstance(value, bytes):
        raise ValueError
    return value
