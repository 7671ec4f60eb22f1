"""Reads the file of one process of a record, one step at a time, and refuses anything that no recorder writes."""

import dataclasses
import itertools
import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import IO

import numpy as np

from samestep.common.errors import ConfigError, printable
from samestep.common.flags import FieldValues
from samestep.common.steps.checked import MOST, flag_of, list_of, number_of, refuse, shown, whole_of, words_of
from samestep.common.steps.frames import ADDED, read_frames
from samestep.common.steps.projections import Piece
from samestep.common.steps.record import (
    ARGUMENT,
    PHASES,
    READ,
    SCHEMA,
    Phase,
    RecordedStep,
    RecordedTensor,
    RecordHeader,
    absent,
    size_of,
    stats_dtype,
)
from samestep.common.steps.rows import mix

_ODD = (AttributeError, KeyError, TypeError, ValueError, OverflowError)
"""The errors that values of a wrong kind raise."""


@dataclasses.dataclass(frozen=True, eq=False)
class RankHead:
    """The part of a process's file before its steps.

    Attributes:
        header: The header, with the tensors that were added later.
        added: The initial weights of the added tensors.
        begin: The position of the first step in the file.
        groups: For each later addition, the names of the tensors that were added together.
    """

    header: RecordHeader
    added: np.ndarray
    begin: int
    groups: Sequence[Sequence[str]]


def read_head(file: IO[bytes], name: str) -> RankHead:
    """Reads the header of one process, and finds the tensors that were added later.

    Args:
        file: The file.
        name: The file's name for messages.

    Raises:
        ConfigError: The file is not a record, or is damaged.
    """
    frames = read_frames(file, name)
    try:
        values, _ = next(frames)
        schema = values["header"]["schema"]  # type: ignore[index]
        if type(schema) is int and schema not in READ:
            raise ConfigError(f"{name} has schema {schema}, this samestep reads {SCHEMA}; record the script again.")
        header = _header(values["header"])  # type: ignore[arg-type]
        begin = file.tell()
        added = [(_tensors(more["tensors"]), array) for more, array in read_frames(file, name, ADDED)]
        dtype = stats_dtype(header.is_float64)
        weights = np.concatenate([np.zeros(0, dtype), *(_weights(*each, dtype) for each in added)])
    except StopIteration:
        raise ConfigError(f"{name} holds no step of a record; record the script again.") from None
    except ConfigError:
        raise
    except _ODD as error:
        raise ConfigError(
            f"{name} is not a record that samestep wrote: its header has another form ({error})."
        ) from None
    whole = dataclasses.replace(header, tensors=sum((more for more, _ in added), header.tensors))
    return RankHead(whole, weights, begin, [[each.name for each in more] for more, _ in added])


def read_steps(file: IO[bytes], name: str, head: RankHead) -> Iterator[RecordedStep]:
    """Reads the steps of one process, one at a time. An incomplete last frame is left out.

    Args:
        file: The file.
        name: The file's name for messages.
        head: The part of the file before the steps.

    Raises:
        ConfigError: The file is damaged.
    """
    file.seek(head.begin)
    for number, (values, array) in enumerate(read_frames(file, name)):
        try:
            step = _step(values, array, head.header, head.added)
        except _ODD as error:
            raise ConfigError(f"{name} is damaged: frame {number + 1} is not a step of its header ({error}).") from None
        yield step


def read_rank(file: IO[bytes], name: str) -> tuple[RecordHeader, Iterator[RecordedStep]]:
    """Reads the file of one process: its header, and its steps one at a time.

    Args:
        file: The file.
        name: The file's name for messages.

    Raises:
        ConfigError: The file is not a record, or is damaged.
    """
    head = read_head(file, name)
    return head.header, read_steps(file, name, head)


def _weights(tensors: tuple[RecordedTensor, ...], array: bytes, dtype: np.dtype) -> np.ndarray:
    if len(array) != len(tensors) * dtype.itemsize:
        refuse("the tensors that were added lack their initial weights")
    return np.frombuffer(array, dtype)


def _header(values: Mapping[str, object]) -> RecordHeader:
    given: FieldValues = dict(values)
    made = RecordHeader(
        **given
        | {
            "tensors": _tensors(given["tensors"]),
            "command": words_of(given["command"]),
            "layouts": tuple(map(printable, words_of(given.get("layouts", [])))),
            **{name: shown(given[name]) for name in ("versions", "environment")},
            "framework": printable(given["framework"]),
            "products": printable(given.get("products", "")),
            "is_cast": given.get("is_cast", given.get("is_float64", False)),  # earlier records lack it
        }
    )
    words_of([made.directory])
    world = whole_of(made.world, 1)
    if whole_of(made.rank) >= world:
        refuse(f"rank {made.rank} of {world}")
    flag_of(made.is_float64)
    flag_of(made.is_cast)
    flag_of(made.is_from_input)
    if made.perturbed is not None:
        whole_of(made.perturbed, -MOST)
    return made


def _tensors(values: object) -> tuple[RecordedTensor, ...]:
    return tuple(_tensor(each) for each in list_of(values))


def _tensor(values: object) -> RecordedTensor:
    given: FieldValues = dict(values)  # type: ignore[call-overload]
    made = RecordedTensor(**given | {"piece": _piece(given["piece"]), "name": printable(given["name"])})
    words_of([made.dtype, made.role, made.layer, made.network])
    flag_of(made.is_trained)
    return made


def _piece(values: object) -> Piece:
    given: FieldValues = dict(values)  # type: ignore[call-overload]
    is_flat = flag_of(given["is_flat"])
    shape, start, size = (tuple(map(whole_of, list_of(given[name]))) for name in ("shape", "start", "size"))
    most = (math.prod(shape),) if is_flat else shape
    ends = [first + count for first, count in zip(start, size, strict=True)]
    if any(end > length for end, length in zip(ends, most, strict=True)) or math.prod(shape) > MOST:
        refuse(f"a piece from {start} of size {size} is not in shape {shape}")
    return Piece(shape, start, size, is_flat)


def _step(values: Mapping[str, object], array: bytes, header: RecordHeader, added: np.ndarray) -> RecordedStep:
    """Returns a step with rows for all tensors. Tensors that are added later have their initial weights, and no gradient."""
    given: FieldValues = dict(values)
    if header.schema > 2:
        num_losses = whole_of(given["losses"])
        if 8 * (num_losses + 1) > len(array):
            refuse("it lacks losses that it counts")
        given["number"], *given["losses"] = struct.unpack_from(f"<q{num_losses}d", array)
        array = array[8 * (num_losses + 1) :]
    number, phases = whole_of(given["number"], -1), list_of(given.pop("phases"))
    counts = [None if given.get(name) is None else whole_of(given[name]) for name in ("rows", "targets")]
    sizes = {printable(name): whole_of(each) for name, each in dict(given.get("arguments", {})).items()}  # type: ignore[call-overload]
    num_hashes = sum(each or 0 for each in counts)
    start = 8 * num_hashes + size_of(sizes)
    if start > len(array):
        refuse("it lacks examples that it counts")
    stats = _stats(phases, array, start, header, added, number) if phases or start < len(array) else None
    hashes = np.frombuffer(array, np.uint64, num_hashes)
    hashes = tuple((hashes if flag_of(given.pop("is_mixed", True)) else mix(hashes)).tolist())
    made = RecordedStep(
        **given
        | {
            "losses": tuple(map(number_of, list_of(given["losses"]))),
            "rows": None if counts[0] is None else hashes[: counts[0]],
            "targets": None if counts[1] is None else hashes[counts[0] or 0 :],
            "arguments": _arguments(sizes, array, 8 * num_hashes),
            "scalars": {printable(name): number_of(value) for name, value in given["scalars"].items()},  # type: ignore[union-attr]
        },
        stats=stats,
    )
    flag_of(made.is_skipped)
    for value in made.counts.values():
        whole_of(value)
    return made


def _arguments(sizes: Mapping[str, int], array: bytes, start: int) -> dict[str, bytes]:
    """Returns the bytes that a frame holds for each argument, from an offset in its array on."""
    ends = [start, *(start + ARGUMENT * each for each in itertools.accumulate(sizes.values()))]
    return {name: array[begin:end] for name, begin, end in zip(sizes, ends, ends[1:], strict=False)}


def _stats(
    phases: list[object], array: bytes, start: int, header: RecordHeader, added: np.ndarray, number: int
) -> dict[Phase, np.ndarray]:
    """Returns the rows that a frame holds for each phase, from an offset in its array on."""
    dtype, needed = stats_dtype(header.is_float64), {"weight"} if number == -1 else {"weight", "gradient"}
    if not (needed <= set(phases) <= set(PHASES) and len(set(phases)) == len(phases)):
        refuse(f"phases {phases}")
    num_tensors = len(header.tensors)
    size, left = divmod(len(array) - start, len(phases) * dtype.itemsize)
    if left or not num_tensors - len(added) <= size <= num_tensors:
        refuse("its tensors are not those of the header")
    split = dict(zip(phases, np.frombuffer(array, dtype, offset=start).reshape(len(phases), size), strict=True))
    if size == num_tensors:
        return split  # type: ignore[return-value]
    lacking = absent(num_tensors - size, dtype)
    later = {"weight": added[len(added) - len(lacking) :]}
    return {phase: np.concatenate([rows, later.get(phase, lacking)]) for phase, rows in split.items()}  # type: ignore[misc]
