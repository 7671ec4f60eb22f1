"""Joins the tensors of a script's processes into whole tensors, and their steps into steps of the run."""

import collections
import dataclasses
import functools
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence, Set

import numpy as np

from samestep.common.errors import ConfigError
from samestep.common.steps.gradient_transforms import BACKWARD_PASSES, CLIP_PART, of_all_ranks
from samestep.common.steps.projections import BITS, PROJECTIONS, Piece, stored_bits
from samestep.common.steps.record import FOLLOWER, Phase, RecordedStep, RecordedTensor, RecordHeader
from samestep.common.steps.recorded_run import RankSplit, RunStep, Sums, own_ranks


@dataclasses.dataclass(frozen=True, eq=False)
class JoinedRanks:
    """How the tensors of the ranks make up the tensors of the run.

    Attributes:
        whole: The tensors of the run.
        held: For each tensor its distinct pieces, and for each piece the (rank, place in the rank's header) of every replica.
        owners: The tensor of each piece.
        replicas: The replicas of each piece, [pieces, most replicas], as places among the rows of all ranks; -1 means none.
    """

    whole: tuple[RecordedTensor, ...]
    held: tuple[tuple[tuple[tuple[int, int], ...], ...], ...]
    owners: np.ndarray
    replicas: np.ndarray

    @classmethod
    def of(
        cls, headers: Sequence[RecordHeader], name: str, begun: Sequence[np.ndarray] = (), idle: Set[int] = frozenset()
    ) -> "JoinedRanks":
        """Finds which ranks hold which pieces.

        Args:
            headers: The header of each rank.
            name: The record's name for messages.
            begun: The bits of the initial weights of each rank.
            idle: The ranks that get no examples while others do: later stages of a pipeline, or their replicas.

        Raises:
            ConfigError: The pieces of a tensor do not make up the tensor.
        """
        whole: dict[str, RecordedTensor] = {}
        pieces: dict[str, dict[Piece, list[tuple[int, int]]]] = {}
        first: dict[str, int] = {}  # the bits of a tensor on its first rank
        for rank, header in enumerate(headers):
            bits = begun[rank].tolist() if idle else []
            for place, tensor in enumerate(_apart(header.tensors, rank, whole, first, bits if rank in idle else ())):
                if place < len(bits):
                    first.setdefault(tensor.name, bits[place])
                full = dataclasses.replace(tensor, piece=type(tensor.piece).whole(tensor.piece.shape))
                whole.setdefault(tensor.name, full)
                if math.prod(tensor.piece.size) or not math.prod(tensor.piece.shape):
                    pieces.setdefault(tensor.name, {}).setdefault(tensor.piece, []).append((rank, place))
        for each, full in whole.items():
            size = sum(math.prod(piece.size) for piece in pieces.get(each, ()))
            if size != math.prod(full.piece.shape) and full.role == FOLLOWER:
                pieces.pop(each, None)  # each rank numbers its networks separately
            elif size != math.prod(full.piece.shape):
                raise ConfigError(
                    f"{name}: the pieces of {each} that its ranks hold have {size} of {math.prod(full.piece.shape)} "
                    "numbers; record the script again."
                )
        held = tuple(tuple(tuple(places) for places in pieces.get(each, {}).values()) for each in whole)
        first_rows = np.cumsum([0, *(len(header.tensors) for header in headers)])
        owners = [tensor for tensor, parts in enumerate(held) for _ in parts]
        replicas = np.full((len(owners), len(headers)), -1)
        for number, places in enumerate(places for parts in held for places in parts):
            replicas[number, : len(places)] = [first_rows[rank] + place for rank, place in places]
        return cls(tuple(whole.values()), held, np.array(owners, int), replicas)

    @functools.cached_property
    def is_plain(self) -> bool:
        """Whether a single process holds every tensor whole, so the rows of its file are those of the run."""
        places = np.arange(len(self.whole))
        return np.array_equal(self.owners, places) and np.array_equal(self.replicas, places[:, None])

    def step(self, steps: Sequence[RecordedStep]) -> RunStep:
        """Joins the ranks' records of a step."""
        first = steps[0]
        rows = _of_ranks([step.rows for step in steps])
        phases = [each for each in first.stats or () if each != "local" and all(each in (s.stats or ()) for s in steps)]
        joined, splits = dict[Phase, Sums](), list[RankSplit]()
        for phase in phases:
            rows_of_ranks = [step.stats[phase] for step in steps if step.stats is not None]
            if self.is_plain:
                joined[phase] = _plain(rows_of_ranks[0])
                continue
            all_rows = np.concatenate(rows_of_ranks)
            is_there = _is_there(all_rows)
            joined[phase] = self._sums(all_rows, is_there)
            splits += self._splits(phase, all_rows, is_there) if phase in ("gradient", "weight") else ()
        if _is_exchanged_elsewhere(first, splits) and "weight" in joined:
            joined["gradient"] = self._means([step.stats for step in steps if step.stats])
            splits = [each for each in splits if each.phase != "gradient"]
        return RunStep(
            number=first.number,
            loss=_loss(steps, rows),
            rows=rows,
            targets=_of_ranks([step.targets for step in steps]),
            scalars=of_all_ranks([step.scalars for step in steps]),
            is_skipped=first.is_skipped,
            counts=first.counts,
            class_weights=frozenset(s.counts.get("class_weights", 0) for s in steps if "target_kinds" in s.counts),
            arguments=[step.arguments for step in steps],
            passes=max(step.counts.get(BACKWARD_PASSES, len(step.losses)) for step in steps),
            parts=tuple(loss for step in steps for loss in step.losses),
            sums=joined or None,
            splits=(*_skip_splits(steps), *_scalar_splits(steps), *splits) if len(steps) > 1 else (),
        )

    def _sums(self, rows: np.ndarray, is_there: np.ndarray) -> Sums:
        """Adds up the pieces of each tensor, taking the first replica that has numbers."""
        chosen = np.full(len(self.owners), -1)
        for column in self.replicas.T[::-1]:
            chosen = np.where((column >= 0) & is_there[column], column, chosen)
        is_known = chosen >= 0
        taken, owners = rows[chosen[is_known]], self.owners[is_known]
        made = Sums(
            np.zeros((len(self.whole), PROJECTIONS)), np.zeros(len(self.whole)), np.zeros(len(self.whole), np.uint64)
        )
        for total, part in zip((made.projections, made.square, made.bits), taken.dtype.names or (), strict=True):
            if len(self.owners) == len(self.whole):  # each tensor is one piece
                total[owners] = taken[part]
            else:
                np.add.at(total, owners, taken[part])
        made.bits[:] = stored_bits(made.bits & np.uint64(BITS), made.square)
        lacking = self.owners[~is_known]
        made.projections[lacking] = made.square[lacking] = math.nan
        return made

    def _means(self, stats: Sequence[Mapping[Phase, np.ndarray]]) -> Sums:
        """Adds up the pieces of each tensor, each taken as the mean over its replicas, before any exchange if that is known.

        Args:
            stats: What each rank recorded. The squared norm of a mean is estimated from its projections. A rank without a
                gradient counts as zero; NaN and infinity stay.
        """
        rows = np.concatenate([each["gradient"] for each in stats])
        before = np.concatenate([each.get("local", each["gradient"]) for each in stats])
        for replicas in self.replicas:
            own = replicas[replicas >= 0]
            if len(set(rows["bits"][own].tolist())) > 1:
                given = (before if _is_there(before[own]).any() else rows)[own]
                with np.errstate(invalid="ignore"):  # infinities of opposite signs add up to NaN
                    mean = np.where(_is_there(given)[:, None], given["projections"], 0).mean(0)
                rows["projections"][own], rows["square"][own] = mean, np.mean(np.square(mean, dtype=float))
                rows["bits"][own] = rows["bits"][own].sum()
        return self._sums(rows, _is_there(rows))

    def _splits(self, phase: Phase, rows: np.ndarray, is_there: np.ndarray) -> Iterator[RankSplit]:
        bits = rows["bits"]
        first, is_replica = self.replicas[:, :1], self.replicas >= 0
        differs = (bits[self.replicas] != bits[first]) | (is_there[self.replicas] != is_there[first])
        odd_ones = set(np.flatnonzero((differs & is_replica).any(axis=1)).tolist())
        pieces = ((tensor, places) for tensor, parts in zip(self.whole, self.held, strict=True) for places in parts)
        for number, (tensor, places) in enumerate(pieces) if odd_ones else ():
            if number in odd_ones and tensor.role == "parameter":
                own = self.replicas[number, : len(places)]
                values = {
                    rank: int(bits[row]) if is_there[row] else None for (rank, _), row in zip(places, own, strict=True)
                }
                yield RankSplit(phase, tensor.name, _odd(values))


def _is_exchanged_elsewhere(step: RecordedStep, splits: Sequence[RankSplit]) -> bool:
    """Returns whether ranks with different gradients took the same update, i.e. it used a copy of them that was exchanged."""
    phases = {each.phase for each in splits}
    return "gradient" in phases and "weight" not in phases and not step.is_skipped and step.scalars.get("lr") != 0


def _plain(rows: np.ndarray) -> Sums:
    return Sums(rows["projections"].astype(float), rows["square"].copy(), rows["bits"].copy())


def _is_there(rows: np.ndarray) -> np.ndarray:
    """Returns which rows have numbers; the row of a tensor without a gradient has none."""
    return ~(np.isnan(rows["square"]) & np.isnan(rows["projections"]).all(axis=1) & (rows["bits"] == 0))


def _odd(values: Mapping[int, object]) -> tuple[int, ...]:
    """Returns the ranks whose value is not the most common one; if several are, the one of the earliest rank counts."""
    (common, _), *others = collections.Counter(values.values()).most_common()
    return tuple(rank for rank, value in values.items() if value != common) if others else ()


def _scalar_splits(steps: Sequence[RecordedStep]) -> Iterator[RankSplit]:
    for name in dict.fromkeys(name for step in steps for name in step.scalars):
        values = {rank: step.scalars[name] for rank, step in enumerate(steps) if name in step.scalars}
        if name != CLIP_PART and (odd := _odd(values)):
            yield RankSplit("scalar", name, odd)


def _skip_splits(steps: Sequence[RecordedStep]) -> Iterator[RankSplit]:
    if odd := _odd({rank: step.is_skipped for rank, step in enumerate(steps)}):
        yield RankSplit("skipped", "update", odd)


def _of_ranks(each: Sequence[tuple[int, ...] | None]) -> dict[int, tuple[int, ...]] | None:
    """Returns the hashes of each rank; None if those of any rank are unknown."""
    known = {rank: rows for rank, rows in enumerate(each) if rows is not None}
    return known if len(known) == len(each) else None


def _apart(
    tensors: Sequence[RecordedTensor],
    rank: int,
    whole: Mapping[str, RecordedTensor],
    first: Mapping[str, int],
    bits: Sequence[int],
) -> list[RecordedTensor]:
    """Returns the tensors of a rank, with a prefix if other ranks have different tensors of the same names (pipeline stages).

    Args:
        tensors: The tensors.
        rank: The rank.
        whole: The tensors of the ranks before, by name.
        first: The bits of the initial weights of those tensors, by name.
        bits: The bits of this rank's initial weights, if the rank is a later stage or a replica of one: matrices of different
            stages start from different numbers.
    """
    made = [*tensors]
    for number in range(rank + 1):
        prefix = f"rank{number}." if number else ""
        made = [
            each if each.role == FOLLOWER else dataclasses.replace(each, name=prefix + each.name) for each in tensors
        ]
        known = [(each, whole[each.name]) for each in made if each.role != FOLLOWER and each.name in whole]
        is_stage = bool(known) or number in (0, rank)
        alike = [each for each, other in known if each.piece == other.piece and each.role == "parameter"]
        matrices = {each.name for each in alike if len(each.piece.shape) > 1}
        begun = (own == first[each.name] for each, own in zip(made, bits, strict=False) if each.name in matrices)
        if is_stage and all(each.piece.shape == other.piece.shape for each, other in known) and all(begun):
            break
    return made


def _loss(steps: Sequence[RecordedStep], rows: Mapping[int, tuple[int, ...]] | None) -> float | None:
    """Returns the mean loss over ranks. It is not weighted by examples, because their mean gradient is not either."""
    own = [steps[rank] for rank in (own_ranks(rows) if rows else range(len(steps)))]
    sums = [math.fsum(step.losses) for step in own if step.losses]
    return statistics.fmean(sums) if sums else None
