"""The layouts that a number of devices allows a model: strategy, mesh, schedule, micro-batch and recomputation.

What cannot win is left out: rows that show an algorithm, or take a step that another row takes in less time; GPipe where 1F1B
can run, which takes as long and keeps more; recomputation where there is room without; and micro-batches that are smaller than
need be.
"""

import dataclasses
import itertools
import math
from collections.abc import Callable, Mapping, Sequence

from samestep.common.axes.used import check_split
from samestep.common.catalog import strategy_info
from samestep.common.errors import ConfigError
from samestep.common.features.used import refuse_features
from samestep.common.mesh import Mesh
from samestep.common.seconds.core_time import Taken
from samestep.common.strategy import Run
from samestep.common.workload.models.spec import num_positions
from samestep.experiments.advising.candidate_meshes import (
    FRAMEWORK,
    MEGATRON,
    Candidate,
    ComposedOptions,
    RankedStrategy,
    meshes,
    num_microbatches,
    num_stage_ranks,
    with_microbatches,
)
from samestep.experiments.advising.held import PipePlace, needed, places

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


def search(
    base: Run,
    num_devices: int,
    memory: float,
    keep: Mapping[str, int],
    tell: Callable[[str], None] = lambda text: None,
) -> Search:
    """Lists every layout that has room.

    Args:
        base: The model, batch, optimizer and bytes of weights.
        num_devices: All of them are used.
        memory: The bytes of a device.
        keep: Mesh axis -> its size, where it is not to be searched.
        tell: Is told how far it is.
    """
    found, every = Search(), list(meshes(base, num_devices, keep, base.weights is not None))
    for number, (row, mesh) in enumerate(every):
        tell(f"{number:,} of {len(every):,} meshes")
        try:
            _try_mesh(found, base, row, mesh, memory)
        except ConfigError as error:
            found.refused.setdefault(row.title, str(error))
    possible = {each.row.title for each in found.fitting} | found.closest.keys()
    found.refused = {name: why for name, why in found.refused.items() if name not in possible}
    found.closest = {
        name: each for name, each in found.closest.items() if name not in {f.row.title for f in found.fitting}
    }
    return found


def _try_mesh(found: Search, base: Run, row: RankedStrategy, mesh: Mesh, memory: float) -> None:
    """Adds what has room of one row on one mesh.

    Raises:
        ConfigError: The mesh is impossible for the model or the batch.
    """
    info = strategy_info(FRAMEWORK, row.strategy)
    run = dataclasses.replace(base, strategy=info, mesh=mesh, options=_options(base, row, mesh))
    replicas = mesh.replicas
    if base.batch_size % replicas:
        raise ConfigError(
            f"global batch {base.batch_size:,} does not divide among {replicas:,} replicas; "
            f"give a --batch-size that is a multiple of {replicas}"
        )
    rows, is_first = base.batch_size // replicas, True
    for schedule in ("1f1b", "gpipe", "interleaved_1f1b") if Taken.is_staged(run) else ("",):
        runs = list(with_microbatches(run, rows, schedule))
        if not runs:
            continue
        check_split(runs[0]) if is_first else info.needs(runs[0])
        if is_first and not row.composed:
            refuse_features(runs[-1])
        is_first = False
        least = max(place.state for place in places(runs[0], row))
        hopeless, closest = least > memory, found.closest.get(row.title)
        if hopeless and closest and least >= closest.needed_bytes:
            continue
        for twice in (False, True) if not hopeless else (True,):
            trial = _Trial(
                found, row, rows, places(_computing_twice(runs[0]) if twice else runs[0], row), memory, twice
            )
            fitting = trial.of(runs[:1] if hopeless else runs)
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
    places: Sequence[PipePlace]
    memory: float
    twice: bool
    knows_activations: bool = True

    def of(self, runs: Sequence[Run]) -> list[Candidate]:
        """Returns what has room.

        Args:
            runs: One for each size of a micro-batch, the smallest first.
        """
        ranks = num_stage_ranks(runs[0])
        most = MOST_MICROBATCHES * ranks if ranks > 1 else 0
        wanted = [each for each in runs if num_microbatches(each) <= most] or runs[-1:]
        fitting = list(itertools.takewhile(self._fits, map(self._candidate, wanted)))
        smaller = reversed(runs[: len(runs) - len(wanted)])
        return fitting or list(itertools.islice(filter(self._fits, map(self._candidate, smaller)), 1))

    def _candidate(self, run: Run) -> Candidate:
        size = self.rows // num_microbatches(run)
        bytes_, self.knows_activations = needed(self.places, run)
        return Candidate(_computing_twice(run) if self.twice else run, self.row, size, bytes_, self.knows_activations)

    def _fits(self, candidate: Candidate) -> bool:
        if candidate.needed_bytes <= self.memory:
            return True
        before = self.found.closest.get(self.row.title, candidate)
        self.found.closest[self.row.title] = min(before, candidate, key=lambda each: each.needed_bytes)
        return False


def _computing_twice(run: Run) -> Run:
    """Returns the run with segments computed again in the backward pass."""
    return dataclasses.replace(run, techniques=run.techniques.computing_twice())


def _options(base: Run, row: RankedStrategy, mesh: Mesh) -> object:
    """Returns the options of a row, or of a composition, whose norms are split along `tensor` if the sequence can be."""
    if row != MEGATRON:
        make = strategy_info(FRAMEWORK, row.strategy).options
        return make(shard_optimizer=True) if row.shards_optimizer else make()
    tokens = num_positions(base.workload.model)
    return ComposedOptions(sequence_parallel=tokens % math.prod(map(mesh.parts, ("features", "positions"))) == 0)
