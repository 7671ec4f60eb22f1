"""Reads the file of one process of a record, a step at a time, and refuses what no recorder writes."""

import math
import zlib
from collections.abc import Iterator, Mapping
from typing import IO, NoReturn

import numpy as np

from samestep.common.errors import ConfigError
from samestep.common.files.reading import Unreadable, parse_json
from samestep.common.steps.projections import Piece
from samestep.common.steps.record import (
    CHECKSUMS,
    LENGTHS,
    MAGIC,
    MOST_FRAME_BYTES,
    PHASES,
    SCHEMA,
    Phase,
    RecordedStep,
    RecordedTensor,
    RecordHeader,
    stats_dtype,
)

_MOST = 2**62
"""Of a whole number."""
_ODD = (AttributeError, KeyError, TypeError, ValueError, OverflowError)
"""What a value of another kind ends in."""


def read_rank(file: IO[bytes], name: str) -> tuple[RecordHeader, Iterator[RecordedStep]]:
    """Reads the file of one process. A last frame that was not written to its end is left out.

    Args:
        file: The file; the steps are read as they are asked for.
        name: The name for messages.

    Raises:
        ConfigError: It is not a record, or damaged.
    """
    frames = _frames(file, name)
    try:
        values, _ = next(frames)
        schema = values["header"]["schema"]  # type: ignore[index]
        if type(schema) is int and schema != SCHEMA:
            raise ConfigError(f"{name} has schema {schema}, this samestep reads {SCHEMA}; record the script again.")
        header = _header(values["header"])  # type: ignore[arg-type]
    except StopIteration:
        raise ConfigError(f"{name} holds no step of a record; record the script again.") from None
    except ConfigError:
        raise
    except _ODD as error:
        raise ConfigError(
            f"{name} is not a record that samestep wrote: its header has another form ({error})."
        ) from None
    return header, _steps(frames, header, name)


def _frames(file: IO[bytes], name: str) -> Iterator[tuple[Mapping[str, object], bytes]]:
    while len(start := file.read(LENGTHS.size + CHECKSUMS.size)) == LENGTHS.size + CHECKSUMS.size:
        magic, text_size, array_size = LENGTHS.unpack_from(start)
        of_lengths, checksum = CHECKSUMS.unpack_from(start, LENGTHS.size)
        is_damaged = zlib.crc32(start[: LENGTHS.size]) != of_lengths
        if magic != MAGIC or is_damaged or max(text_size, array_size) > MOST_FRAME_BYTES:
            raise ConfigError(f"{name} is not a record that samestep wrote, or it is damaged; record the script again.")
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


def _steps(
    frames: Iterator[tuple[Mapping[str, object], bytes]], header: RecordHeader, name: str
) -> Iterator[RecordedStep]:
    for number, (values, array) in enumerate(frames):
        try:
            step = _step(values, array, header)
        except _ODD as error:
            raise ConfigError(f"{name} is damaged: frame {number + 1} is not a step of its header ({error}).") from None
        yield step


def _header(values: Mapping[str, object]) -> RecordHeader:
    given = dict(values)
    made = RecordHeader(
        **given
        | {
            "tensors": tuple(_tensor(each) for each in _list(given["tensors"])),
            "command": _words(given["command"]),
            "layouts": _words(given.get("layouts", [])),
        }
    )
    for mapping in (made.versions, made.environment):
        _words([*mapping, *mapping.values()])
    _words([made.framework, made.directory])
    world = _whole(made.world, 1)
    if _whole(made.rank) >= world:
        _refuse(f"rank {made.rank} of {world}")
    _flag(made.is_float64)
    if made.perturbed is not None:
        _whole(made.perturbed, -_MOST)
    return made


def _tensor(values: object) -> RecordedTensor:
    given = dict(values)  # type: ignore[call-overload]
    made = RecordedTensor(**given | {"piece": _piece(given["piece"])})
    _words([made.name, made.dtype, made.role, made.layer])
    _flag(made.is_trained)
    return made


def _piece(values: object) -> Piece:
    given = dict(values)  # type: ignore[call-overload]
    is_flat = _flag(given["is_flat"])
    shape, start, size = (tuple(map(_whole, _list(given[name]))) for name in ("shape", "start", "size"))
    most = (math.prod(shape),) if is_flat else shape
    ends = [first + count for first, count in zip(start, size, strict=True)]
    if any(end > length for end, length in zip(ends, most, strict=True)) or math.prod(shape) > _MOST:
        _refuse(f"a piece from {start} of size {size} is not in shape {shape}")
    return Piece(shape, start, size, is_flat)


def _step(values: Mapping[str, object], array: bytes, header: RecordHeader) -> RecordedStep:
    given, dtype = dict(values), stats_dtype(header.is_float64)
    phases: list[Phase] = _list(given.pop("phases"))  # type: ignore[assignment]
    needed = {"weight"} if given["number"] == -1 else {"weight", "gradient"}
    if phases and not (needed <= set(phases) <= set(PHASES) and len(set(phases)) == len(phases)):
        _refuse(f"phases {phases}")
    count = None if given["rows"] is None else _whole(given["rows"])
    start = 8 * (count or 0)
    if len(array) != start + len(phases) * len(header.tensors) * dtype.itemsize:
        _refuse("it has not the tensors of the header")
    split = np.frombuffer(array, dtype, offset=start).reshape(len(phases), len(header.tensors)) if phases else ()
    made = RecordedStep(
        **given
        | {
            "losses": tuple(map(_number, _list(given["losses"]))),
            "rows": None if count is None else tuple(np.frombuffer(array[:start], "<u8").tolist()),
            "scalars": {name: _number(value) for name, value in given["scalars"].items()},  # type: ignore[union-attr]
        },
        stats=dict(zip(phases, split, strict=True)) or None,
    )
    _whole(made.number, -1)
    _flag(made.is_skipped)
    for value in made.counts.values():
        _whole(value)
    return made


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else _refuse(f"{value!r:.40} is no list")


def _words(values: object) -> tuple[str, ...]:
    for each in (words := values if isinstance(values, list) else _list(values)):
        if not isinstance(each, str):
            _refuse(f"{each!r:.40} is no text")
    return tuple(words)


def _whole(value: object, least: int = 0) -> int:
    return value if type(value) is int and least <= value <= _MOST else _refuse(f"{value!r:.40} is no such number")


def _number(value: object) -> float:
    return float(value) if type(value) in (int, float) else _refuse(f"{value!r:.40} is no number")  # type: ignore[arg-type]


def _flag(value: object) -> bool:
    return value if isinstance(value, bool) else _refuse(f"{value!r:.40} is neither true nor false")


def _refuse(what: str) -> NoReturn:
    raise ValueError(what)
