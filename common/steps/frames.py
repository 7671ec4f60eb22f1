"""The frames of an append-only file: lengths, checksums, a JSON object and an array."""

import json
import os
import struct
import zlib
from collections.abc import Iterator, Mapping
from typing import IO

from samestep.common.errors import ConfigError
from samestep.common.files.reading import Unreadable, parse_json

LENGTHS, CHECKSUMS, _CHECKSUM = struct.Struct("<4sII"), struct.Struct("<II"), struct.Struct("<I")
"""The start of a frame: its kind, the bytes of the JSON object and of the array; then the CRC-32 of these, and of both parts."""
STEP, ADDED = b"step", b"more"
"""The kinds of frames: STEP for the header or a step, ADDED for tensors that were added to the header later."""
MOST_FRAME_BYTES = 2**30
"""The largest number of bytes in the array of a frame: ten million tensors."""
Start = tuple[bytes, bytes, int]
"""The start of a frame: the lengths with their checksum, the JSON object, and its checksum."""


def frame_of(values: Mapping[str, object], array: bytes, kind: bytes = STEP) -> bytes:
    """Returns a frame.

    Args:
        values: The JSON object. Dataclasses in it are written as objects.
        array: The bytes of the array.
        kind: STEP or ADDED.
    """
    return started_frame(start_of(json.dumps(values, default=vars), len(array), kind), array)


def start_of(values: str, size: int, kind: bytes = STEP) -> Start:
    """Returns the start of a frame, which does not depend on the content of the array.

    Args:
        values: The JSON object, as text.
        size: The number of bytes in the array.
        kind: STEP or ADDED.
    """
    text = values.encode()
    lengths = LENGTHS.pack(kind, len(text), size)
    return lengths + _CHECKSUM.pack(zlib.crc32(lengths)), text, zlib.crc32(text)


def started_frame(start: Start, array: bytes) -> bytes:
    """Returns a frame whose start is already made.

    Args:
        start: What `start_of` returned.
        array: The bytes of the array.
    """
    lengths, text, checksum = start
    return b"".join((lengths, _CHECKSUM.pack(zlib.crc32(array, checksum)), text, array))


def read_frames(file: IO[bytes], name: str, wanted: bytes = STEP) -> Iterator[tuple[Mapping[str, object], bytes]]:
    """Yields the frames of one kind, from the current position on. An incomplete last frame is left out.

    Args:
        file: The file.
        name: The file's name for messages.
        wanted: The kind of the frames.

    Raises:
        ConfigError: The file is damaged, or is not a record.
    """
    while len(start := file.read(LENGTHS.size + CHECKSUMS.size)) == LENGTHS.size + CHECKSUMS.size:
        kind, text_size, array_size = LENGTHS.unpack_from(start)
        of_lengths, checksum = CHECKSUMS.unpack_from(start, LENGTHS.size)
        is_damaged = zlib.crc32(start[: LENGTHS.size]) != of_lengths
        if kind not in (STEP, ADDED) or is_damaged or max(text_size, array_size) > MOST_FRAME_BYTES:
            raise ConfigError(f"{name} is not a record that samestep wrote, or it is damaged; record the script again.")
        if kind != wanted:
            file.seek(text_size + array_size, os.SEEK_CUR)
            continue
        body = file.read(text_size + array_size)
        if len(body) < text_size + array_size:
            return  # the process was killed while it wrote this frame
        if zlib.crc32(body) != checksum:
            raise ConfigError(f"{name} is damaged: a frame does not have its checksum; record the script again.")
        try:
            values = parse_json(body[:text_size])
        except Unreadable as error:
            raise ConfigError(f"{name} is not a record that samestep wrote: {error}.") from None
        if not isinstance(values, Mapping):
            raise ConfigError(f"{name} is not a record that samestep wrote: a frame holds no object.")
        yield values, body[text_size:]
