"""Candidates in the order of their predicted seconds, on a machine or under changed conditions."""

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence

from samestep.common.errors import ConfigError
from samestep.common.seconds.machine import Machine
from samestep.common.seconds.step_time import StepTime
from samestep.common.strategy import Run
from samestep.common.techniques.used import STEPS_ALONE, used
from samestep.experiments.advising.candidate_meshes import Candidate
from samestep.experiments.advising.candidates import Search
from samestep.experiments.advising.prediction import needed_bytes
from samestep.experiments.advising.step_times import WORK, Timer

SLOWER = (2, 4, 8, 16)
"""The factors by which links are slowed down in trials."""
Tell = Callable[[str], None]
"""A function that is called with the progress of a search, in words."""
_TOLD_EVERY = 1000
EQUAL = 0.01
"""Layouts that are slower by less than this share count as equally fast."""


@dataclasses.dataclass(frozen=True)
class Timed:
    """A candidate with its predicted time."""

    candidate: Candidate
    time: StepTime

    @property
    def layout(self) -> str:
        """The strategy and the mesh, in one line."""
        return self.candidate.layout


@dataclasses.dataclass(frozen=True)
class Change:
    """A condition that differs from the request, and the layout that is first under it.

    Attributes:
        what: What is different, as the beginning of a sentence.
        first: The layout that is then first; None if none has room.
        before: The former first layout under the new condition; None if it no longer has room, or takes another batch.
    """

    what: str
    first: Timed | None
    before: Timed | None

    @property
    def is_clear(self) -> bool:
        """Whether the former first layout is now slower by more than `EQUAL`, or does not fit."""
        return self.before is None or (
            self.first is not None and self.before.time.total >= (1 + EQUAL) * self.first.time.total
        )


@dataclasses.dataclass(frozen=True)
class Ranking:
    """Times candidates, each once on each machine."""

    timer: Timer
    tell: Tell

    def of(self, candidates: Sequence[Candidate], machine: Machine, before: Sequence[Timed] = ()) -> list[Timed]:
        """Returns the candidates, fastest first; among equally fast ones, the one that needs the least memory comes first.

        Args:
            candidates: The candidates.
            machine: The machine that they run on.
            before: The earlier ranking on it, from which times are reused.
        """
        times, found = {id(each.candidate): each for each in before}, list[Timed]()
        for number, each in enumerate(candidates):
            if number % _TOLD_EVERY == 0:
                self.tell(f"{number:,} of {len(candidates):,} layouts timed")
            found.append(times.get(id(each)) or Timed(each, self.timer(each, machine)))
        return sorted(found, key=_order)

    def under(self, others: Mapping[str, Search], ranked: Sequence[Timed], machine: Machine) -> Iterator[Change]:
        """Ranks again under other conditions.

        Args:
            others: Description of a condition -> the result of the search under it.
            ranked: The ranking without these conditions.
            machine: The machine that the layouts run on.
        """
        for what, found in others.items():
            yield _change(what, ranked[0], self.of(found.fitting, machine, ranked))

    def with_slower_links(self, ranked: Sequence[Timed], machine: Machine, nodes: int) -> Iterator[Change]:
        """Ranks again with slower links between nodes and inside a node, where there are any.

        Args:
            ranked: The ranking with the links as they are.
            machine: The machine with these links.
            nodes: The number of nodes.
        """
        if nodes > 1:
            yield self._with_slower_links(ranked, machine, "network_bytes_per_second", "between nodes")
        if machine.gpus_per_node > 1:
            yield self._with_slower_links(ranked, machine, "node_bytes_per_second", "inside a node")

    def _with_slower_links(self, ranked: Sequence[Timed], machine: Machine, rate: str, where: str) -> Change:
        """Returns the change under the least slowdown that puts another layout first, or else under the largest one tried."""
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
        """Ranks the layouts that may be first on slower links, and those with the strategy and mesh of the former first one.

        No step takes less time there. So once a layout takes longer on the fast links than the best so far does on the slow ones,
        neither it nor any that follows can be first.
        """
        found, best = list[Timed](), math.inf
        for each in ranked:
            if each.time.total <= best or each.layout == ranked[0].layout:
                found.append(Timed(each.candidate, self.timer(each.candidate, slower)))
                best = min(best, found[-1].time.total)
        return sorted(found, key=_order)

    def taking_steps_alone(self, ranked: Sequence[Timed], machine: Machine) -> Timed | None:
        """Returns replicas with local steps if they are faster than the first layout and that layout waits for replicas most.

        They take another step, so they are not ranked with the others.

        Args:
            ranked: The layouts that take the requested step.
            machine: The machine that they run on.
        """
        if longest_wait(ranked[0].time) != "data_exchange":
            return None
        for each in ranked:
            run = each.candidate.run
            run = dataclasses.replace(run, techniques=dataclasses.replace(run.techniques, **STEPS_ALONE))
            if each.candidate.row.composed or not _can_take_steps_alone(run):
                continue
            needs = max(map(needed_bytes, run.strategy.cost(run, "nccl").footprints))
            candidate = dataclasses.replace(each.candidate, run=run, needed_bytes=needs)
            found = Timed(candidate, self.timer(candidate, machine))
            if needs <= machine.memory_bytes and (1 + EQUAL) * found.time.total < ranked[0].time.total:
                return found
        return None


def _can_take_steps_alone(run: Run) -> bool:
    """Returns whether the ranks of a run can take steps alone, given its other techniques."""
    if not run.strategy.refuses.keys().isdisjoint(STEPS_ALONE):
        return False
    try:
        for technique in used(run.techniques):
            technique.refuse(run)
    except ConfigError:
        return False
    return True


def longest_wait(time: StepTime) -> str:
    """Returns the part of a step for which a device waits longest.

    Args:
        time: The parts of the step.
    """
    waits = {name: seconds for name, seconds in time.parts().items() if name not in WORK}
    return max(waits, key=lambda name: waits[name])


def _order(timed: Timed) -> tuple[float, int]:
    """Returns a sort key: time first, then needed memory."""
    return timed.time.total, timed.candidate.needed_bytes


def _change(what: str, first: Timed, ranked: Sequence[Timed]) -> Change:
    before = next((each for each in ranked if each.layout == first.layout), None)
    return Change(what, ranked[0] if ranked else None, before)
