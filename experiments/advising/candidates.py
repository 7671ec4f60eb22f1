"""The layouts that a number of devices allows a model: strategy, mesh, schedule, micro-batch and recomputation.

What cannot win is left out: rows that show an algorithm, or take a step that another row takes in less time; GPipe where 1F1B
can run, which takes as long and keeps more; recomputation where there is room without; and micro-batches that are smaller than
need be.
"""

import dataclasses
import functools
import itertools
from collections.abc import Mapping, Sequence

from samestep.common.axes.used import check_split
from samestep.common.catalog import strategy_info
from samestep.common.costs.footprints import FOOTPRINTS
from samestep.common.costs.saved_activations.activations import activation_bytes, pipeline_activation_bytes
from samestep.common.errors import ConfigError
from samestep.common.mesh import Mesh
from samestep.common.seconds.core_time import Taken
from samestep.common.strategy import Run
from samestep.common.workload.pipeline_schedule import SCHEDULES
from samestep.experiments.advising.candidate_meshes import (
    FRAMEWORK,
    Candidate,
    RankedStrategy,
    meshes,
    num_microbatches,
    with_microbatches,
)
from samestep.experiments.advising.prediction import needed_bytes

LEAST_SEGMENTS = 3
"""Of a model with inner segments that can be computed again."""
MOST_MICROBATCHES = 32
"""For each rank of a pipeline: then the bubble takes less than 1/32 of what the step computes."""


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
        base: The model, batch, optimizer and bytes of weights.
        num_devices: All of them are used.
        memory: The bytes of a device.
        keep: Mesh axis -> its size, where it is not to be searched.
    """
    found = Search()
    for row, mesh in meshes(base, num_devices):
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


def _try_mesh(found: Search, base: Run, row: RankedStrategy, mesh: Mesh, memory: float) -> None:
    """Adds what has room of one row on one mesh.

    Raises:
        ConfigError: The mesh is impossible for the model or the batch.
    """
    info = strategy_info(FRAMEWORK, row.strategy)
    run = dataclasses.replace(base, strategy=info, mesh=mesh, options=info.options())
    replicas = mesh.replicas
    if base.batch_size % replicas:
        raise ConfigError(
            f"global batch {base.batch_size:,} does not divide among {replicas:,} replicas; "
            f"give a --batch-size that is a multiple of {replicas}"
        )
    rows = base.batch_size // replicas
    for schedule in ("1f1b", "gpipe", "interleaved_1f1b") if Taken.is_staged(run) else ("",):
        runs = list(with_microbatches(run, rows, schedule))
        if not runs:
            continue
        check_split(runs[0])
        state = _held_bytes(_State(runs[0], SCHEDULES[schedule].stages_per_rank if schedule else 0))
        hopeless, closest = max(state) > memory, found.closest.get(row.strategy)
        if hopeless and closest and max(state) >= closest.needed_bytes:
            continue
        for twice in (False, True) if not hopeless else (True,):
            trial = _Trial(found, row, rows, state, memory)
            tried = [dataclasses.replace(e, techniques=e.techniques.computing_twice()) for e in runs] if twice else runs
            fitting = trial.of(tried[:1] if hopeless else tried)
            found.fitting += fitting
            largest = max((each.microbatch_size for each in fitting), default=0)
            runs = [each for each in runs if rows // num_microbatches(each) > largest]
            if not runs or not trial.knows_activations or len(run.workload.model.segments()) < LEAST_SEGMENTS:
                break


@dataclasses.dataclass
class _Trial:
    """Tries the micro-batches of one layout: which of those that may win have room.

    Without a pipeline the largest wins, since smaller ones compute no faster. With one, smaller ones shorten the bubble, until
    there are so many of them that little of it is left.
    """

    found: Search
    row: RankedStrategy
    rows: int
    held: Sequence[int]
    memory: float
    knows_activations: bool = True

    def of(self, runs: Sequence[Run]) -> list[Candidate]:
        """Returns what has room.

        Args:
            runs: One for each size of a micro-batch, the smallest first.
        """
        most = MOST_MICROBATCHES * len(self.held) if len(self.held) > 1 else 0
        wanted = [each for each in runs if num_microbatches(each) <= most] or runs[-1:]
        fitting = list(itertools.takewhile(self._fits, map(self._candidate, wanted)))
        smaller = reversed(runs[: len(runs) - len(wanted)])
        return fitting or list(itertools.islice(filter(self._fits, map(self._candidate, smaller)), 1))

    def _candidate(self, run: Run) -> Candidate:
        size = self.rows // num_microbatches(run)
        candidate = _with_room(run, self.row, size, self.held)
        self.knows_activations = candidate.knows_activations
        return candidate

    def _fits(self, candidate: Candidate) -> bool:
        if candidate.needed_bytes <= self.memory:
            return True
        before = self.found.closest.get(self.row.strategy, candidate)
        self.found.closest[self.row.strategy] = min(before, candidate, key=lambda each: each.needed_bytes)
        return False


@dataclasses.dataclass(frozen=True)
class _State:
    """A run by what decides the memory beside activations: no batch and no micro-batch does."""

    run: Run = dataclasses.field(compare=False)
    stages_per_rank: int
    decides: tuple[object, ...] = ()

    def __post_init__(self) -> None:
        run = self.run
        decides = (run.name, run.workload.model, run.mesh, run.optimizer, run.dtype, run.weights)
        object.__setattr__(self, "decides", decides)


@functools.lru_cache(maxsize=2**12)  # an advice searches three times
def _held_bytes(state: _State) -> Sequence[int]:
    """Returns the most that a device needs beside activations, for each place along `pipe`."""
    run = state.run
    held, devices = [0] * run.mesh.pipe, 0
    for footprint in FOOTPRINTS[run.strategy.cost](run):
        place = devices * len(held) // run.num_devices
        held[place] = max(held[place], needed_bytes(footprint) - (footprint.activations_bytes or 0))
        devices += footprint.count
    return held


def _with_room(run: Run, row: RankedStrategy, microbatch_size: int, held: Sequence[int]) -> Candidate:
    """Returns the candidate with what it needs."""
    if Taken.is_staged(run):
        options = run.options
        kept = pipeline_activation_bytes(run, options.schedule, options.microbatches)
    else:
        kept = [activation_bytes(run)]
    needed = max(state + (activations or 0) for state, activations in zip(held, kept, strict=True))
    return Candidate(run, row, microbatch_size, needed, None not in kept)
