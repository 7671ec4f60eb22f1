"""The layouts that a number of devices allows a model: strategy, mesh, schedule, micro-batch and recomputation.

What cannot win is left out: rows that show an algorithm, or take a step that another row takes in less time; GPipe where 1F1B
can run, which takes as long and keeps more; and of a mesh every micro-batch above the largest that has room.
"""

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from samestep.common.catalog import strategy_info
from samestep.common.errors import ConfigError
from samestep.common.evidence.costs.activations import activation_bytes, pipeline_activation_bytes
from samestep.common.evidence.costs.core_time import Taken
from samestep.common.evidence.costs.footprints import FOOTPRINTS
from samestep.common.mesh import Mesh
from samestep.common.strategy import Run
from samestep.common.workload.pipeline import SCHEDULES
from samestep.experiments.prediction import needed_bytes

MOST_MICROBATCHES = 32
"""For each rank of a pipeline: then the bubble takes less than 1/32 of what the step computes."""


@dataclasses.dataclass(frozen=True)
class Row:
    """A row of torch's catalogue that may win.

    Attributes:
        strategy: Its name.
        axis: Along which it splits the batch.
        sharding: What it shards along that axis: 1 the optimizer state, 2 also gradients, 3 also parameters.
    """

    strategy: str
    axis: str = "data"
    sharding: int = 0


FULLY = Row("fsdp", "shard", 3)
WHOLE = (Row("ddp"), Row("zero1", sharding=1), Row("zero2", "shard", 2), FULLY)
"""Rows that leave layers whole."""
SPLIT = (Row("hybrid"), Row("hybrid", "shard", 2))
"""Rows that split the model, beside a batch that is split."""
ALONE = (Row("pp"), Row("tp"))
"""Rows that split the model, and nothing else: by layers, or inside them."""
ONE = Row("single")
"""The row of one device."""


@dataclasses.dataclass(frozen=True)
class Candidate:
    """One way to take the step.

    Attributes:
        run: With its strategy, mesh, schedule and micro-batches.
        row: Of the catalogue.
        microbatch_size: Examples of a pass of one replica.
        recomputes: Whether activations are computed again in the backward pass.
        needed_bytes: Of the device that needs most: all classes of memory at their peaks.
        knows_activations: Whether they are part of that.
    """

    run: Run
    row: Row
    microbatch_size: int
    recomputes: bool
    needed_bytes: int
    knows_activations: bool

    @property
    def cell(self) -> str:
        """What `samestep predict` takes, but for recomputation."""
        given = dataclasses.asdict(self.run.options) if Taken.is_staged(self.run) else {}
        given |= {"accumulation_steps": self.run.accumulation_steps} if self.run.accumulation_steps > 1 else {}
        return "+".join([self.run.name, *(f"{n}={v}" for n, v in given.items()), f"mesh={self.run.mesh}"])


@dataclasses.dataclass
class Search:
    """What a search found.

    Attributes:
        fitting: The candidates that have room.
        closest: Strategy -> of the candidates that lack room, the one that lacks least.
        refused: Strategy -> why a mesh of it is impossible, of those for which no mesh is possible.
    """

    fitting: list[Candidate] = dataclasses.field(default_factory=list)
    closest: dict[str, Candidate] = dataclasses.field(default_factory=dict)
    refused: dict[str, str] = dataclasses.field(default_factory=dict)


def search(base: Run, num_devices: int, memory: float, keep: Mapping[str, int]) -> Search:
    """Lists every layout that has room.

    Args:
        base: The model, batch, optimizer and precision.
        num_devices: All of them are used.
        memory: The bytes of a device.
        keep: Mesh axis -> its size, where it is not to be searched.
    """
    found = Search()
    for row, mesh in _meshes(base, num_devices):
        if all(mesh.axis(name) == size for name, size in keep.items()):
            try:
                _try_mesh(found, base, row, mesh, memory)
            except ConfigError as error:
                found.refused.setdefault(row.strategy, str(error))
    possible = {each.row.strategy for each in found.fitting} | found.closest.keys()
    found.refused = {name: why for name, why in found.refused.items() if name not in possible}
    found.closest = {
        name: each for name, each in found.closest.items() if name not in {f.row.strategy for f in found.fitting}
    }
    return found


def worth_timing(candidates: Iterable[Candidate]) -> Iterator[Candidate]:
    """Leaves out micro-batches that cannot win, of candidates that differ in nothing else.

    Without a pipeline the largest wins, since smaller ones compute no faster. With one, smaller ones shorten the bubble, until
    there are so many of them that little of it is left.
    """
    groups: dict[tuple[object, ...], list[Candidate]] = {}
    for each in candidates:
        schedule = each.run.options.schedule if Taken.is_staged(each.run) else ""
        groups.setdefault((each.row, each.run.mesh, schedule, each.recomputes), []).append(each)
    for (_, mesh, _, _), group in groups.items():
        *smaller, largest = sorted(group, key=lambda each: each.microbatch_size)
        most = MOST_MICROBATCHES * mesh.axis("pipe") if mesh.axis("pipe") > 1 else 0
        yield from (each for each in smaller if each.run.options.microbatches <= most) if most else ()
        yield largest


def divisors(number: int) -> list[int]:
    """What divides a number, in ascending order."""
    small = [count for count in range(1, math.isqrt(number) + 1) if number % count == 0]
    return sorted({*small, *(number // count for count in small)})


def _meshes(base: Run, num_devices: int) -> Iterator[tuple[Row, Mesh]]:
    """Every row on every mesh of that many devices whose layers can be split so, axes of one device left out."""
    num_segments = len(base.workload.model.segments())
    for pipe in divisors(num_devices):
        for tensor in divisors(num_devices // pipe) if pipe <= num_segments else ():
            replicas = num_devices // pipe // tensor
            axes = [(name, size) for name, size in (("pipe", pipe), ("tensor", tensor)) if size > 1]
            for row in _rows(pipe, tensor, replicas):
                yield row, Mesh(tuple([(row.axis, replicas), *axes] if replicas > 1 or not axes else axes))
    for shards in divisors(num_devices)[1:-1]:  # HSDP
        yield FULLY, Mesh((("data", num_devices // shards), ("shard", shards)))


def _rows(pipe: int, tensor: int, replicas: int) -> Sequence[Row]:
    if pipe == tensor == 1:
        return WHOLE if replicas > 1 else (ONE,)
    if replicas > 1:
        return SPLIT
    by_layers, inside = ALONE
    return (SPLIT[0] if pipe > 1 and tensor > 1 else by_layers if pipe > 1 else inside,)


def _try_mesh(found: Search, base: Run, row: Row, mesh: Mesh, memory: float) -> None:
    """Adds what has room of one row on one mesh.

    Raises:
        ConfigError: The mesh is impossible for the model or the batch.
    """
    info = strategy_info("torch", row.strategy)
    run = dataclasses.replace(base, strategy=info, mesh=mesh, options=info.options())
    replicas = mesh.axis("data") * mesh.axis("shard")
    if base.batch_size % replicas:
        raise ConfigError(f"global batch {base.batch_size:,} does not divide among {replicas:,} replicas")
    rows = base.batch_size // replicas
    held: dict[int, list[int]] = {}
    for schedule in ("1f1b", "gpipe", "interleaved_1f1b") if Taken.is_staged(run) else ("",):
        runs = list(_with_microbatches(run, rows, schedule))
        if not runs:
            continue
        run.strategy.needs(runs[0])
        stages = SCHEDULES[schedule].stages_per_rank if schedule else 0
        if stages not in held:
            held[stages] = _held_bytes(runs[0])
        for recomputes in (False, True) if max(held[stages]) <= memory else (True,):
            for each in runs:
                candidate = _with_room(each, row, rows // _microbatches(each), recomputes, held[stages])
                if candidate.needed_bytes > memory:
                    before = found.closest.get(row.strategy, candidate)
                    found.closest[row.strategy] = min(before, candidate, key=lambda each: each.needed_bytes)
                    break
                found.fitting.append(candidate)
            if not candidate.knows_activations:
                break


def _microbatches(run: Run) -> int:
    return run.options.microbatches if Taken.is_staged(run) else run.accumulation_steps


def _with_microbatches(run: Run, rows: int, schedule: str) -> Iterator[Run]:
    """The run with every size of a micro-batch that the schedule can take, the smallest first."""
    ranks, segments = run.mesh.axis("pipe"), len(run.workload.model.segments())
    for size in divisors(rows):
        count = rows // size
        if not schedule:
            techniques = dataclasses.replace(run.techniques, accumulation_steps=count)
            yield dataclasses.replace(run, techniques=techniques)
        elif {
            "1f1b": count >= ranks,
            "gpipe": count < ranks,
            "interleaved_1f1b": 1 < ranks <= segments // 2 and count % ranks == 0,
        }[schedule]:
            yield dataclasses.replace(run, options=type(run.options)(schedule=schedule, microbatches=count))


def _held_bytes(run: Run) -> list[int]:
    """The most that a device needs beside activations, for each place along `pipe`; no micro-batch changes it."""
    held, devices = [0] * run.mesh.axis("pipe"), 0
    for footprint in FOOTPRINTS[run.strategy.cost](run):
        place = devices * len(held) // run.num_devices
        held[place] = max(held[place], needed_bytes(footprint) - (footprint.activations_bytes or 0))
        devices += footprint.count
    return held


def _with_room(run: Run, row: Row, microbatch_size: int, recomputes: bool, held: Sequence[int]) -> Candidate:
    """The candidate with what it needs."""
    if Taken.is_staged(run):
        options = run.options
        kept = pipeline_activation_bytes(run, options.schedule, options.microbatches, recomputes)
    else:
        kept = [activation_bytes(run, recomputes=recomputes)]
    needed = max(state + (activations or 0) for state, activations in zip(held, kept, strict=True))
    return Candidate(run, row, microbatch_size, recomputes, needed, None not in kept)
