"""Reads the record of a script that had several processes, and joins what they held."""

import collections
import contextlib
import dataclasses
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

import numpy as np

from samestep.common.errors import ConfigError
from samestep.common.files.reading import Unreadable, open_plain
from samestep.common.steps.projections import BITS, PROJECTIONS
from samestep.common.steps.record import Phase, RecordedStep, RecordedTensor, RecordHeader, rank_files, read_rank
from samestep.common.steps.recorded_run import RankSplit, RecordedRun, RunStep, Sums, own_ranks


@dataclasses.dataclass(frozen=True, eq=False)
class _Steps:
    """Reads the files of all ranks side by side, a step at a time. It ends where the shortest file does."""

    files: Sequence[Path]
    join: "_Join"

    def __iter__(self) -> Iterator[RunStep]:
        with contextlib.ExitStack() as stack:
            readers = [read_rank(stack.enter_context(_opened(path)), str(path))[1] for path in self.files]
            for steps in zip(*readers, strict=False):
                if len({step.number for step in steps}) > 1:
                    numbers = ", ".join(str(step.number) for step in steps)
                    raise ConfigError(
                        f"{self.files[0].parent}: its ranks are at steps {numbers}; record the script again."
                    )
                yield self.join.step(steps)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    try:
        with open_plain(path) as file:
            yield file
    except Unreadable as error:
        raise ConfigError(f"{path} cannot be read: {error}.") from None


def read_run(directory: Path) -> RecordedRun:
    """Reads a record.

    Args:
        directory: The directory of the record.

    Raises:
        ConfigError: It is no record, is damaged, or lacks a rank.
    """
    files = rank_files(directory)
    if not files:
        raise ConfigError(f"{directory} is not a record: it holds no rank-0.steps; `samestep record` writes one.")
    headers = [_header_of(path) for path in files]
    world, ranks = headers[0].world, {header.rank for header in headers}
    if missing := sorted(set(range(world)) - ranks):
        raise ConfigError(f"{directory} lacks rank {missing[0]} of its {world} processes; record the script again.")
    if len(files) != world or len({(header.world, header.command) for header in headers}) > 1:
        raise ConfigError(f"{directory} holds ranks of several runs; record the script again, into a new directory.")
    join = _Join.of(headers, str(directory))
    return RecordedRun(str(directory), dataclasses.replace(headers[0], tensors=join.whole), _Steps(files, join))


def _header_of(path: Path) -> RecordHeader:
    with _opened(path) as file:
        return read_rank(file, str(path))[0]


@dataclasses.dataclass(frozen=True, eq=False)
class _Join:
    """How the tensors of the ranks make those of the run.

    Attributes:
        whole: The tensors of the run.
        held: The held for each tensor, the distinct pieces: (rank, place in the rank's header) of each replica of it.
    """

    whole: tuple[RecordedTensor, ...]
    held: tuple[tuple[tuple[tuple[int, int], ...], ...], ...]

    @classmethod
    def of(cls, headers: Sequence[RecordHeader], name: str) -> "_Join":
        """Finds which ranks hold which pieces.

        Raises:
            ConfigError: The pieces of a tensor are not the tensor.
        """
        whole: dict[str, RecordedTensor] = {}
        pieces: dict[str, dict[object, list[tuple[int, int]]]] = {}
        for rank, header in enumerate(headers):
            for place, tensor in enumerate(header.tensors):
                full = dataclasses.replace(tensor, piece=type(tensor.piece).whole(tensor.piece.shape))
                whole.setdefault(tensor.name, full)
                if math.prod(tensor.piece.size) or not math.prod(tensor.piece.shape):
                    pieces.setdefault(tensor.name, {}).setdefault(tensor.piece, []).append((rank, place))
        for each, full in whole.items():
            size = sum(math.prod(piece.size) for piece in pieces.get(each, ()))
            if size != math.prod(full.piece.shape):
                raise ConfigError(
                    f"{name}: the pieces of {each} that its ranks hold have {size} of {math.prod(full.piece.shape)} "
                    "numbers; record the script again."
                )
        held = tuple(tuple(tuple(places) for places in pieces[each].values()) for each in whole)
        return cls(tuple(whole.values()), held)

    def step(self, steps: Sequence[RecordedStep]) -> RunStep:
        """Joins what the ranks saw of a step."""
        first = steps[0]
        rows = _rows(steps)
        looked = all(step.stats is not None for step in steps)
        phases = [phase for phase in (first.stats or {}) if phase != "local"] if looked else []
        joined = {phase: self._sums(phase, steps) for phase in phases}
        splits = [split for phase in phases for split in self._splits(phase, steps)]
        return RunStep(
            number=first.number,
            loss=_loss(steps, rows),
            rows=rows,
            scalars={name: value for step in reversed(steps) for name, value in step.scalars.items()},
            is_skipped=first.is_skipped,
            passes=max(len(step.losses) for step in steps),
            parts=tuple(loss for step in steps for loss in step.losses),
            sums=joined or None,
            splits=(*_scalar_splits(steps), *splits),
        )

    def _sums(self, phase: Phase, steps: Sequence[RecordedStep]) -> Sums:
        made = Sums(
            np.zeros((len(self.whole), PROJECTIONS)), np.zeros(len(self.whole)), np.zeros(len(self.whole), np.uint64)
        )
        for tensor, pieces in enumerate(self.held):
            for replicas in pieces:
                seen = [
                    row for rank, place in replicas for row in (_row(steps[rank], phase, place),) if row is not None
                ]
                if not seen:
                    made.projections[tensor] = made.square[tensor] = math.nan
                    continue
                made.projections[tensor] += seen[0]["projections"]
                made.square[tensor] += seen[0]["square"]
                made.bits[tensor] = (int(made.bits[tensor]) + int(seen[0]["bits"])) & BITS
        return made

    def _splits(self, phase: Phase, steps: Sequence[RecordedStep]) -> Iterator[RankSplit]:
        for tensor, pieces in zip(self.whole, self.held, strict=True):
            for replicas in pieces:
                if len(replicas) > 1 and tensor.role == "parameter":
                    bits = {rank: _bits(steps[rank], phase, place) for rank, place in replicas}
                    if odd := _odd(bits):
                        yield RankSplit(phase, tensor.name, odd)


def _row(step: RecordedStep, phase: Phase, place: int) -> np.void | None:
    """Returns what a rank saw of a tensor; None if it had no gradient."""
    assert step.stats is not None
    row = step.stats[phase][place]
    return None if np.isnan(row["square"]) and np.isnan(row["projections"]).all() and not row["bits"] else row


def _bits(step: RecordedStep, phase: Phase, place: int) -> int | None:
    row = _row(step, phase, place)
    return None if row is None else int(row["bits"])


def _odd(values: Mapping[int, object]) -> tuple[int, ...]:
    """Returns the ranks whose value is not the commonest one; of several commonest, that of the first rank counts."""
    (common, _), *others = collections.Counter(values.values()).most_common()
    return tuple(rank for rank, value in values.items() if value != common) if others else ()


def _scalar_splits(steps: Sequence[RecordedStep]) -> Iterator[RankSplit]:
    for name in dict.fromkeys(name for step in steps for name in step.scalars):
        values = {rank: step.scalars[name] for rank, step in enumerate(steps) if name in step.scalars}
        if odd := _odd(values):
            yield RankSplit("scalar", name, odd)


def _rows(steps: Sequence[RecordedStep]) -> dict[int, tuple[int, ...]] | None:
    """Returns the examples of each rank; None if those of any are not known."""
    rows = {rank: step.rows for rank, step in enumerate(steps) if step.rows is not None}
    return rows if len(rows) == len(steps) else None


def _loss(steps: Sequence[RecordedStep], rows: Mapping[int, tuple[int, ...]] | None) -> float | None:
    """Returns the mean over ranks. It is not weighted by examples, because neither is the mean of their gradients."""
    own = [steps[rank] for rank in (own_ranks(rows) if rows else range(len(steps)))]
    sums = [math.fsum(step.losses) for step in own if step.losses]
    return statistics.fmean(sums) if sums else None
