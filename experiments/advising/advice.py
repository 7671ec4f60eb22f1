"""Layouts ranked by predicted time, and what of the machine or the request would change the first of them."""

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence

from samestep.common.errors import ConfigError
from samestep.common.mesh import Mesh
from samestep.common.request import MAX_PREDICTED_DEVICES
from samestep.common.seconds.machine import Machine
from samestep.common.seconds.step_time import StepTime
from samestep.common.seconds.validation import Score, expected_error
from samestep.common.strategy import Run
from samestep.experiments.advising.calibration import Calibration
from samestep.experiments.advising.candidate_meshes import Candidate
from samestep.experiments.advising.candidates import Search, search
from samestep.experiments.advising.step_times import SHAPES, Timer, seconds_of
from samestep.experiments.advising.training_cost import Training
from samestep.experiments.printing.text import count

SLOWER = (2, 4, 8, 16)
"""How many times slower links are tried."""
Tell = Callable[[str], None]
"""Takes how far a search is, in words."""
LARGER_BATCH = 4
_TOLD_EVERY = 1000
EQUAL = 0.01
"""What is slower by less is as fast."""


@dataclasses.dataclass(frozen=True)
class Timed:
    """A candidate with its predicted time."""

    candidate: Candidate
    time: StepTime

    @property
    def layout(self) -> str:
        """Strategy and mesh."""
        return self.candidate.layout


@dataclasses.dataclass(frozen=True)
class Change:
    """What is first once something is different.

    Attributes:
        what: Is different, as the beginning of a sentence.
        first: The layout that is first then; None if none has room.
        before: What was first, in the changed conditions; None if it has no room any more, or takes another batch.
    """

    what: str
    first: Timed | None
    before: Timed | None

    @property
    def is_clear(self) -> bool:
        """Whether what was first is slower now by more than `EQUAL`, or has no room."""
        return self.before is None or (
            self.first is not None and self.before.time.total >= (1 + EQUAL) * self.first.time.total
        )


@dataclasses.dataclass(frozen=True)
class Advice:
    """Every layout that has room.

    Attributes:
        base: The model, batch, optimizer and bytes of weights.
        machine: What it runs on.
        nodes: How many.
        ranked: The layouts, the fastest first.
        search: What else was found.
        changes: What would be first under other conditions.
        validation: How far such predictions were off where they could be held against measurements; None where none were.
        calibration: What was fitted to own measurements, if there are any.
        training: The whole training that it is for.
    """

    base: Run
    machine: Machine
    nodes: int
    ranked: tuple[Timed, ...]
    search: Search
    changes: tuple[Change, ...]
    validation: Score | None = None
    calibration: Calibration | None = None
    training: Training = dataclasses.field(default_factory=Training)

    @property
    def num_devices(self) -> int:
        """How many devices there are."""
        return self.nodes * self.machine.gpus_per_node

    @property
    def first(self) -> Timed:
        """The fastest layout."""
        return self.ranked[0]

    def best_of(self, names: Sequence[str] = ()) -> list[Timed]:
        """Returns the fastest layout of every strategy, the fastest strategy first.

        Args:
            names: The names of strategies to leave out.
        """
        found: dict[str, Timed] = {}
        for each in self.ranked:
            found.setdefault(each.candidate.row.title, each)
        return [each for name, each in found.items() if name not in names]


def advise(
    base: Run,
    machine: Machine,
    nodes: int,
    keep: Mesh | None = None,
    timer: Timer = seconds_of,
    tell: Tell = lambda text: None,
    with_changes: bool = True,
) -> Advice:
    """Ranks the layouts of a model on a machine.

    Args:
        base: The model, batch, optimizer and bytes of weights.
        machine: What it runs on.
        nodes: How many; all their devices are used.
        keep: Mesh axes whose sizes are not to be searched.
        timer: Predicts the seconds of each layout.
        tell: Is told how far it is.
        with_changes: Whether to look for what would be first under other conditions.

    Raises:
        ConfigError: The devices do not give the mesh, or no layout has room.
    """
    devices, kept = nodes * machine.gpus_per_node, dict(keep.axes) if keep else {}
    if keep and devices % keep.size:
        raise ConfigError(
            f"--mesh {keep} is {count(keep.size, 'device')}, which do not divide the {devices} of {count(nodes, 'node')}; "
            f"give sizes whose product divides {devices}."
        )
    found = search(base, devices, machine.memory_bytes, kept, tell)
    if not found.fitting:
        raise _fits_nowhere(base, machine, nodes, kept, found)
    ranking = _Ranking(base, nodes, kept, timer, tell)
    ranked = ranking.of(found.fitting, machine)
    was_validated = timer is seconds_of and base.workload.model.name in SHAPES
    validation = expected_error(is_one_node=nodes == 1) if was_validated else None
    changes = tuple(ranking.changes(ranked, machine)) if with_changes else ()
    return Advice(base, machine, nodes, tuple(ranked), found, changes, validation)


@dataclasses.dataclass(frozen=True)
class _Ranking:
    """What stays the same while the machine and the batch change."""

    base: Run
    nodes: int
    keep: Mapping[str, int]
    timer: Timer
    tell: Tell

    def of(self, candidates: Sequence[Candidate], machine: Machine) -> list[Timed]:
        """Returns the fastest first; of equally fast ones that which needs least memory."""
        return sorted(self._timed(candidates, machine), key=_order)

    def _timed(self, candidates: Sequence[Candidate], machine: Machine) -> Iterator[Timed]:
        for number, each in enumerate(candidates):
            if number % _TOLD_EVERY == 0:
                self.tell(f"{number:,} of {len(candidates):,} layouts timed")
            yield Timed(each, self.timer(each, machine))

    def changes(self, ranked: Sequence[Timed], machine: Machine) -> Iterator[Change]:
        """Ranks again with slower links, less memory and a larger batch."""
        if self.nodes > 1:
            yield self._with_slower_links(ranked, machine, "network_bytes_per_second", "between nodes")
        if machine.gpus_per_node > 1:
            yield self._with_slower_links(ranked, machine, "node_bytes_per_second", "inside a node")
        less = self._found(self.base, machine, machine.memory_bytes / 2)
        yield _change("with half of the memory", ranked[0], less)
        larger = dataclasses.replace(self.base, batch_size=LARGER_BATCH * self.base.batch_size)
        yield _change(
            f"with a batch of {larger.batch_size:,}", ranked[0], self._found(larger, machine, machine.memory_bytes)
        )

    def _found(self, base: Run, machine: Machine, memory: float) -> list[Timed]:
        """Ranks what a new search finds."""
        return self.of(search(base, self.nodes * machine.gpus_per_node, memory, self.keep, self.tell).fitting, machine)

    def _with_slower_links(self, ranked: Sequence[Timed], machine: Machine, rate: str, where: str) -> Change:
        """Returns the change under the least slowdown that puts another layout first, or else the largest that is tried."""
        first = ranked[0]
        change = Change("", first, first)
        for times in SLOWER:
            slower = dataclasses.replace(machine, **{rate: getattr(machine, rate) / times})
            found = self._fastest(ranked, slower)
            change = _change(f"with links {where} {times} times slower", first, found)
            if change.is_clear:
                break
        return change

    def _fastest(self, ranked: Sequence[Timed], slower: Machine) -> list[Timed]:
        """Ranks the layouts that may be first on slower links, and those of the one that was.

        No step takes less time there. So once a layout takes longer on the fast links than the best so far does on the slow ones,
        neither it nor any that follows can be first.
        """
        found, best = list[Timed](), math.inf
        for each in ranked:
            if each.time.total <= best or each.layout == ranked[0].layout:
                found.append(Timed(each.candidate, self.timer(each.candidate, slower)))
                best = min(best, found[-1].time.total)
        return sorted(found, key=_order)


def _order(timed: Timed) -> tuple[float, int]:
    """Sort key: the fastest first, and of equally fast ones that which needs least memory."""
    return timed.time.total, timed.candidate.needed_bytes


def _change(what: str, first: Timed, ranked: Sequence[Timed]) -> Change:
    before = next((each for each in ranked if each.layout == first.layout), None)
    return Change(what, ranked[0] if ranked else None, before)


def _fits_nowhere(base: Run, machine: Machine, nodes: int, keep: Mapping[str, int], found: Search) -> ConfigError:
    """Says by how much the closest layout misses, and on how many nodes one has room."""
    if not found.closest:
        name, why = next(iter(found.refused.items()), ("", "no mesh has these sizes"))
        return ConfigError(
            f"no strategy can take it on {count(nodes * machine.gpus_per_node, 'device')}. torch:{name}: {why}"
        )
    closest = min(found.closest.values(), key=lambda each: each.needed_bytes)
    needed, memory = closest.needed_bytes / 1e9, machine.memory_bytes / 1e9
    told = (
        f"{base.workload.name} has no room on {count(nodes, 'node')} of {machine.title}: the closest layout, {closest.cell}, "
        f"needs {needed:,.0f} GB, and a device has {memory:,.0f} GB."
    )
    more = nodes
    while (more := 2 * more) * machine.gpus_per_node <= MAX_PREDICTED_DEVICES:
        if search(base, more * machine.gpus_per_node, machine.memory_bytes, keep).fitting:
            return ConfigError(f"{told} It has room on {count(more, 'node')}: --nodes {more}.")
    return ConfigError(f"{told} More nodes do not help; give a smaller --batch-size, or devices with more memory.")
