"""The layouts that a number of devices allows a model: strategy, mesh, schedule, micro-batch and recomputation.

Layouts that cannot be fastest are left out: strategies that demonstrate an algorithm, or take a step that another one takes in
less time; GPipe where 1F1B can run, since it takes as long and keeps more; recomputation if there is room without it; and
micro-batches that are smaller than necessary.
"""

import contextlib
import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from samestep.common.axes.used import check_split
from samestep.common.catalog import read_options, strategy_info
from samestep.common.errors import ConfigError
from samestep.common.features.used import refuse_features
from samestep.common.mesh import Mesh
from samestep.common.request import StrategyOptions
from samestep.common.seconds.core_time import with_microbatches
from samestep.common.strategy import Run
from samestep.common.workload.models.spec import num_positions
from samestep.experiments.advising.candidate_meshes import (
    FRAMEWORK,
    MEGATRON,
    Candidate,
    ComposedOptions,
    RankedStrategy,
    meshes,
    microbatch_counts,
)
from samestep.experiments.advising.device_memory import PipePlace, least_state, needed, places, schedule_of_places

LEAST_SEGMENTS = 3
"""The choices of recomputation for a model with inner segments."""
MOST_MICROBATCHES = 32
"""The most micro-batches for each rank of a pipeline: the bubble then takes less than 1/32 of what the step computes."""


@dataclasses.dataclass
class Search:
    """The result of a search.

    Attributes:
        fitting: The candidates that fit.
        closest: Strategy -> the candidate that lacks least, among those that do not fit.
        refused: Strategy -> why a mesh of it is impossible, for strategies for which none is possible.
    """

    fitting: list[Candidate] = dataclasses.field(default_factory=list)
    closest: dict[str, Candidate] = dataclasses.field(default_factory=dict)
    refused: dict[str, str] = dataclasses.field(default_factory=dict)


class Condition(NamedTuple):
    """A request and a memory size, which decide which layouts fit.

    Attributes:
        base: The model, batch, optimizer and bytes of weights.
        memory: The bytes of a device.
    """

    base: Run
    memory: float


def search(base: Run, num_devices: int, memory: float, keep: Mapping[str, int]) -> Search:
    """Lists every layout that fits under one condition; the arguments are those of `search_under`."""
    (found,) = search_under([Condition(base, memory)], num_devices, keep)
    return found


def search_under(
    conditions: Sequence[Condition],
    num_devices: int,
    keep: Mapping[str, int],
    tell: Callable[[str], None] = lambda text: None,
) -> list[Search]:
    """Lists every layout that fits under each of several conditions; one that fits under two is a single candidate.

    Args:
        conditions: The conditions, whose requests may differ only in the batch.
        num_devices: The number of devices, all of which are used.
        keep: Mesh axis -> its size, if it is fixed.
        tell: Receives the progress of the search, in words.
    """
    base, searches = conditions[0].base, [Search() for _ in conditions]
    every = list(meshes(base, num_devices, keep, base.weights is not None))
    for number, (row, mesh) in enumerate(every):
        tell(f"{number:,} of {len(every):,} meshes")
        layouts, least = _Layouts(row, mesh), least_state(base, row, mesh)
        for found, condition in zip(searches, conditions, strict=True):
            closest = found.closest.get(row.title)
            if closest and least > condition.memory and least >= closest.needed_bytes:
                continue
            try:
                layouts.add_fitting(found, *condition)
            except ConfigError as error:
                found.refused.setdefault(row.title, str(error))
    for found in searches:
        fitting = {each.row.title for each in found.fitting}
        possible = fitting | found.closest.keys()
        found.refused = {name: why for name, why in found.refused.items() if name not in possible}
        found.closest = {name: each for name, each in found.closest.items() if name not in fitting}
    return searches


def has_room(base: Run, num_devices: int, memory: float, keep: Mapping[str, int]) -> bool:
    """Returns whether any layout fits; the arguments are those of `search_under`, under one condition."""
    found = Search()
    for row, mesh in meshes(base, num_devices, keep, base.weights is not None):
        if least_state(base, row, mesh) <= memory:
            with contextlib.suppress(ConfigError):
                _Layouts(row, mesh).add_fitting(found, base, memory)
        if found.fitting:
            return True
    return False


@dataclasses.dataclass
class _Layouts:
    """The layouts of a row on a mesh, with the findings under one condition that also hold under the others."""

    row: RankedStrategy
    mesh: Mesh
    places: dict[tuple[str, bool], Sequence[PipePlace]] = dataclasses.field(default_factory=dict)
    taken: set[tuple[int, str]] = dataclasses.field(default_factory=set)
    candidates: dict[tuple[int, str, int, bool], Candidate] = dataclasses.field(default_factory=dict)

    def add_fitting(self, found: Search, base: Run, memory: float) -> None:
        """Adds the layouts that have room.

        Raises:
            ConfigError: The mesh is impossible for the model or the batch.
        """
        row, mesh = self.row, self.mesh
        info = strategy_info(FRAMEWORK, row.strategy)
        run = dataclasses.replace(base, strategy=info, mesh=mesh, options=_options(base, row, mesh))
        replicas = mesh.replicas
        if base.batch_size % replicas:
            raise ConfigError(
                f"global batch {base.batch_size:,} does not divide among {replicas:,} replicas; "
                f"give a --batch-size that is a multiple of {replicas}"
            )
        rows, is_first = base.batch_size // replicas, True
        for schedule in ("1f1b", "gpipe", "interleaved_1f1b") if run.asked.schedule else ("",):
            if not (counts := microbatch_counts(run, rows, schedule)):
                continue
            if (base.batch_size, schedule) not in self.taken:
                smallest = with_microbatches(run, schedule, counts[0])
                check_split(smallest) if is_first else info.needs(smallest)
                if is_first and not row.composed:
                    refuse_features(with_microbatches(run, schedule, counts[-1]))
                self.taken.add((base.batch_size, schedule))
            is_first = False
            trial = _Trial(found, self, run, rows, schedule, memory)
            least = max(place.state for place in trial.places)
            hopeless, closest = least > memory, found.closest.get(row.title)
            if hopeless and closest and least >= closest.needed_bytes:
                continue
            for twice in (False, True) if not hopeless else (True,):
                again = run.techniques.computing_twice() if twice else run.techniques
                trial = _Trial(found, self, dataclasses.replace(run, techniques=again), rows, schedule, memory)
                fitting = trial.of(counts[:1] if hopeless else counts)
                found.fitting += fitting
                largest = max((each.microbatch_size for each in fitting), default=0)
                counts = [count for count in counts if rows // count > largest]
                if not counts or not trial.knows_activations or len(run.workload.model.segments()) < LEAST_SEGMENTS:
                    break


@dataclasses.dataclass
class _Trial:
    """Finds out which numbers of micro-batches of one layout have room, among those that may win.

    Without a pipeline the largest wins, since smaller ones compute no faster. With one, smaller ones shorten the bubble, until
    there are so many of them that little of it is left.
    """

    found: Search
    layouts: _Layouts
    run: Run
    rows: int
    schedule: str
    memory: float

    @functools.cached_property
    def places(self) -> Sequence[PipePlace]:
        """The needs of the places along `pipe`, for any size of micro-batch."""
        schedule = schedule_of_places(self.schedule)
        key = schedule, self.run.techniques.recompute
        if key not in self.layouts.places:
            self.layouts.places[key] = places(self.run, self.layouts.row, schedule)
        return self.layouts.places[key]

    @property
    def knows_activations(self) -> bool:
        """Whether the needed bytes include activations."""
        return all(place.kept is not None for place in self.places)

    def of(self, counts: Sequence[int]) -> list[Candidate]:
        """Returns the candidates that have room.

        Args:
            counts: Numbers of micro-batches, those with the smallest micro-batches first.
        """
        ranks = self.run.mesh.parts("layers")
        most = MOST_MICROBATCHES * ranks if ranks > 1 else 0
        wanted = [count for count in counts if count <= most] or counts[-1:]
        fitting = list(itertools.takewhile(bool, map(self._fitting, wanted)))
        smaller = reversed(counts[: len(counts) - len(wanted)])
        return [each for each in fitting or itertools.islice(filter(bool, map(self._fitting, smaller)), 1) if each]

    def _fitting(self, count: int) -> Candidate | None:
        """Returns the layout with `count` micro-batches if it has room; if it has none, it may become the closest one."""
        key = self.run.batch_size, self.schedule, count, self.run.techniques.recompute
        candidate, closest, title = self.layouts.candidates.get(key), self.found.closest, self.layouts.row.title
        needs = candidate.needed_bytes if candidate else needed(self.places, self.run, self.rows, self.schedule, count)
        has_room = needs <= self.memory
        if candidate is None and (has_room or title not in closest or needs < closest[title].needed_bytes):
            run = with_microbatches(self.run, self.schedule, count)
            candidate = Candidate(run, self.layouts.row, self.rows // count, needs, self.knows_activations)
            self.layouts.candidates[key] = candidate
        if has_room:
            return candidate
        if candidate is not None and (title not in closest or needs < closest[title].needed_bytes):
            closest[title] = candidate
        return None


def _options(base: Run, row: RankedStrategy, mesh: Mesh) -> StrategyOptions:
    """Returns the options of a row, or of a composition, whose norms are split along `tensor` if the sequence can be."""
    if row != MEGATRON:
        info = strategy_info(FRAMEWORK, row.strategy)
        return read_options(FRAMEWORK, info, {"shard_optimizer": True} if row.shards_optimizer else {})
    tokens = num_positions(base.workload.model)
    return ComposedOptions(sequence_parallel=tokens % math.prod(map(mesh.parts, ("features", "positions"))) == 0)
