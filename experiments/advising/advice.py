"""Layouts ranked by predicted time, and which changes of the machine or the request would change the first one."""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence

from samestep.common.errors import ConfigError, count
from samestep.common.mesh import Mesh
from samestep.common.request import MAX_PREDICTED_DEVICES
from samestep.common.seconds.machine import Machine
from samestep.common.seconds.validation import Score, expected_error
from samestep.common.strategy import Run
from samestep.experiments.advising.calibration import Calibration
from samestep.experiments.advising.candidate_meshes import meshes
from samestep.experiments.advising.candidates import Condition, Search, has_room, search, search_under
from samestep.experiments.advising.ranking import Change, Ranking, Tell, Timed
from samestep.experiments.advising.step_times import Timer, seconds_of
from samestep.experiments.advising.training_cost import StepCost, Training
from samestep.experiments.printing.text import decimal_size, sharing

LARGER_BATCH = 4
"""The factor by which the batch grows in a trial."""


@dataclasses.dataclass(frozen=True)
class Advice:
    """The ranked layouts that fit, and what else the search found.

    Attributes:
        base: The model, batch, optimizer and bytes of weights.
        machine: What it runs on.
        nodes: The number of nodes.
        ranked: The layouts, the fastest first.
        search: What else was found.
        changes: What would be first under other conditions.
        alone: The layout with local steps, which is another step; None if it is no faster, or does not fit.
        validation: How far such predictions were off from measurements; None if there are none.
        calibration: What was fitted to the user's measurements, if there are any.
        training: The whole training whose cost is stated.
    """

    base: Run
    machine: Machine
    nodes: int
    ranked: tuple[Timed, ...]
    search: Search
    changes: tuple[Change, ...]
    alone: Timed | None = None
    validation: Score | None = None
    calibration: Calibration | None = None
    training: Training = dataclasses.field(default_factory=Training)

    @property
    def num_devices(self) -> int:
        """The number of devices."""
        return self.nodes * self.machine.gpus_per_node

    @property
    def first(self) -> Timed:
        """The fastest layout."""
        return self.ranked[0]

    def cost_of(self, timed: Timed) -> StepCost:
        """Returns the cost of a step of a layout."""
        return StepCost(timed.candidate.run, timed.time.total, self.machine, self.num_devices, self.training)

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
        nodes: The number of nodes, all of whose devices are used.
        keep: Mesh axes whose sizes are fixed.
        timer: Predicts the seconds of each layout.
        tell: Receives the progress of the search, in words.
        with_changes: Whether to look for what would be first under other conditions.

    Raises:
        ConfigError: The devices cannot form the mesh, or no layout has room.
    """
    devices, kept = nodes * machine.gpus_per_node, dict(keep.axes) if keep else {}
    if keep and devices % keep.size:
        raise ConfigError(
            f"--mesh {keep} is {count(keep.size, 'device')}, which do not divide the {devices} of {count(nodes, 'node')}; "
            f"give sizes whose product divides {devices}."
        )
    changed = _changed_conditions(base, machine) if with_changes else {}
    found, *others = search_under([Condition(base, machine.memory_bytes), *changed.values()], devices, kept, tell)
    if not found.fitting:
        raise _fits_nowhere(base, machine, nodes, kept, found)
    ranking = Ranking(timer, tell)
    ranked = ranking.of(found.fitting, machine)
    was_validated = timer is seconds_of and base.workload.model.facts.sizes.layers > 0
    validation = expected_error(is_one_node=nodes == 1) if was_validated else None
    changes = list[Change]()
    if with_changes:
        changes += ranking.with_slower_links(ranked, machine, nodes)
        changes += ranking.under(dict(zip(changed, others, strict=True)), ranked, machine)
    alone = ranking.taking_steps_alone(ranked, machine) if with_changes and nodes > 1 else None
    return Advice(base, machine, nodes, tuple(ranked), found, tuple(changes), alone, validation)


def _changed_conditions(base: Run, machine: Machine) -> Mapping[str, Condition]:
    """Returns the other conditions to search under, keyed by their description."""
    larger = dataclasses.replace(base, batch_size=LARGER_BATCH * base.batch_size)
    return {
        "with half of the memory": Condition(base, machine.memory_bytes / 2),
        f"with a batch of {larger.batch_size:,}": Condition(larger, machine.memory_bytes),
    }


def _fits_nowhere(base: Run, machine: Machine, nodes: int, keep: Mapping[str, int], found: Search) -> ConfigError:
    """Returns an error with the memory that the closest layout lacks, and the number of nodes on which a layout has room."""
    if not found.closest:
        return ConfigError(_say_impossible(base, machine, nodes, keep, found))
    closest = min(found.closest.values(), key=lambda each: each.needed_bytes)
    needed, memory = map(decimal_size, (closest.needed_bytes, machine.memory_bytes))
    told = (
        f"{base.workload.name} does not fit on {count(nodes, 'node')} of {machine.title}: the closest layout, {closest.cell}, "
        f"needs {needed}, and a device has {memory}."
    )
    counts = [
        nodes << power for power in range(1, (MAX_PREDICTED_DEVICES // nodes // machine.gpus_per_node).bit_length())
    ]
    for more in counts:
        if has_room(base, more * machine.gpus_per_node, machine.memory_bytes, keep):
            return ConfigError(f"{told} It fits on {count(more, 'node')}: --nodes {more}.")
    tried = f"Nor does it fit on twice as many nodes{f', and so on up to {max(counts):,}' if counts[1:] else ''}; give"
    smaller = "a smaller --batch-size, or " if closest.microbatch_size > 1 else ""
    return ConfigError(f"{told} {tried if counts else 'Give'} {smaller}devices with more memory.")


def _say_impossible(base: Run, machine: Machine, nodes: int, keep: Mapping[str, int], found: Search) -> str:
    """Says why no strategy can take a request, with a batch that one can take and fewer nodes, if there are any."""
    devices = nodes * machine.gpus_per_node
    told = f"no strategy can take it on {count(devices, 'device')}"
    every = {mesh.replicas for _, mesh in meshes(base, devices, keep, base.weights is not None)}
    for replicas in sorted(each for each in every if base.batch_size % each):
        larger = dataclasses.replace(base, batch_size=-(-base.batch_size // replicas) * replicas)
        other = search(larger, devices, machine.memory_bytes, keep)
        if other.fitting or other.closest:
            fewer = [2**power for power in range(nodes.bit_length()) if 2**power < nodes]
            least = (
                n for n in reversed(fewer) if has_room(base, n * machine.gpus_per_node, machine.memory_bytes, keep)
            )
            return (
                f"{told} with a global batch of {base.batch_size:,}: the fewest replicas that a possible mesh leaves are "
                f"{replicas:,}, among which it has to divide; give --batch-size {larger.batch_size}"
                f"{''.join(f', or --nodes {n}' for n in itertools.islice(least, 1))}."
            )
    if not found.refused:
        return f"{told}: {base.workload.name} cannot be split into the sizes of --mesh {Mesh(tuple(keep.items()))}."
    reasons = sharing((why, f"torch:{name}") for name, why in found.refused.items())
    return f"{told}. " + "; ".join(f"{', '.join(names)}: {why}" for why, names in reasons.items())
