"""The choices in which the rules of `rules.py` say something: of measured rows, and of the layouts of published models."""

import collections
import dataclasses
import functools
import itertools
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from samestep.common.request import RunConfig
from samestep.common.run import parse_prediction
from samestep.common.seconds.machine import load_machine
from samestep.common.seconds.measured import SERVER_GPUS, Measured
from samestep.common.seconds.validation import carried_rows
from samestep.common.workload.models.spec import num_params
from samestep.common.workload.published import PUBLISHED
from samestep.experiments.advising.candidates import search
from samestep.experiments.advising.layouts import WHOLE, Candidate
from samestep.experiments.advising.step_times import seconds_of

MACHINE, NODES, BATCH = "a100-80gb", 64, 1536
"""On which published models are predicted: 512 GPUs."""
SLOWER = (1, 4, 16)
"""How many times slower links between nodes are tried."""
Of = TypeVar("Of")


@dataclasses.dataclass(frozen=True)
class Case:
    """A choice in which a rule says something.

    Attributes:
        following: By how much the best layout that follows the rule is slower than the best of all.
        breaking: The same of those that do not follow it.
        condition: A quantity that the rule may need to be large.
    """

    following: float
    breaking: float
    condition: float = 0.0


def _case(following: Iterable[float], breaking: Iterable[float], condition: float = 0.0) -> Iterator[Case]:
    """The case of two groups of layouts, in seconds; none, if one of them is empty."""
    best, other = min(following, default=0.0), min(breaking, default=0.0)
    if best and other:
        yield Case(best / min(best, other) - 1, other / min(best, other) - 1, condition)


def _rows(rows: Iterable[Measured], follows: Callable[[Measured], bool], condition: float = 0.0) -> Iterator[Case]:
    every = list(rows)
    return _case(
        (row.seconds for row in every if follows(row)), (row.seconds for row in every if not follows(row)), condition
    )


# --- held against measurements ----------------------------------------------------------------------------------------


def _groups(key: Callable[[Measured], Hashable], rows: Iterable[Measured] = ()) -> list[list[Measured]]:
    found: dict[Hashable, list[Measured]] = collections.defaultdict(list)
    for row in rows or carried_rows():
        found[key(row)].append(row)
    return list(found.values())


def start_with_ddp() -> Iterator[Case]:
    """Whole models against split ones; the condition is the number of examples of a device."""
    for group in _groups(lambda row: row.problem):
        yield from _rows(group, lambda row: row.tensor == row.pipe == 1, group[0].batch_size / group[0].gpus)


def smallest_model_parallel_size() -> Iterator[Case]:
    """The fewest devices that share a model, of those that were measured; the condition is that of `start_with_ddp`."""
    for group in _groups(lambda row: row.problem):
        least = min(row.tensor * row.pipe for row in group)
        yield from _rows(
            group, lambda row, least=least: row.tensor * row.pipe == least, group[0].batch_size / group[0].gpus
        )


def tensor_in_a_node() -> Iterator[Case]:
    """Parts in a node against parts on two, at the same micro-batch."""
    for group in _groups(lambda row: (row.problem, row.microbatch_size)):
        yield from _rows(group, lambda row: row.tensor <= SERVER_GPUS)


def tensor_before_pipeline() -> Iterator[Case]:
    """On one server: as many parts as stages, and as many replicas; the condition is that of `start_with_ddp`."""
    rows = [row for row in carried_rows() if row.is_one_node and 1 in (row.tensor, row.pipe)]
    for group in _groups(lambda row: (row.problem, row.data), rows):
        yield from _rows(group, lambda row: row.pipe == 1, group[0].batch_size / group[0].gpus)


def largest_microbatch() -> Iterator[Case]:
    """The largest that was measured against smaller ones, in one layout; the condition is fewer stages."""
    for group in _groups(lambda row: (row.problem, row.tensor, row.data, row.pipe)):
        largest = max(row.microbatch_size for row in group)
        yield from _rows(group, lambda row, largest=largest: row.microbatch_size == largest, -group[0].pipe)


def four_microbatches_a_stage() -> Iterator[Case]:
    """The share of a step that does not grow with the micro-batches: from a batch and its double, in one layout."""
    rows = [row for row in carried_rows() if row.pipe > 1]
    layouts = _groups(lambda row: dataclasses.replace(row, batch_size=0, seconds=0.0), rows)
    for small, large in itertools.chain(*(itertools.permutations(layout, 2) for layout in layouts)):
        count = small.layout.microbatches / small.pipe
        if large.batch_size == 2 * small.batch_size and count >= 4:
            yield Case((2 * small.seconds - large.seconds) / small.seconds, 0.0, count)


# --- held against the model -------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class _Layout:
    """A layout of a published model with its predicted seconds."""

    strategy: str
    mesh: Mapping[str, int]
    recomputes: bool
    seconds: float


def network_gigabits() -> float:
    """The Gbit/s of a node to others, at full speed."""
    return 8 * load_machine(MACHINE).network_bytes_per_second / 1e9


@functools.cache
def _candidates(name: str) -> Sequence[Candidate]:
    """Every layout of a model that has room."""
    machine = load_machine(MACHINE)
    base = parse_prediction(RunConfig(workload=name, batch_size=BATCH), "bf16")
    return search(base, NODES * machine.gpus_per_node, machine.memory_bytes, {}).fitting


@functools.cache
def _layouts(name: str, slower: int = 1) -> Sequence[_Layout]:
    """The same with their seconds, where links between nodes are slower than they are."""
    machine = load_machine(MACHINE)
    machine = dataclasses.replace(machine, network_bytes_per_second=machine.network_bytes_per_second / slower)
    return [
        _Layout(each.row.strategy, dict(each.run.mesh.axes), each.recomputes, seconds_of(each, machine).total)
        for each in _candidates(name)
    ]


def _predicted(
    layouts: Iterable[_Layout], follows: Callable[[_Layout], bool], condition: float = 0.0
) -> Iterator[Case]:
    every = list(layouts)
    return _case(
        (each.seconds for each in every if follows(each)),
        (each.seconds for each in every if not follows(each)),
        condition,
    )


def pipeline_for_giants() -> Iterator[Case]:
    """Above 100 billion parameters with a pipeline, below without."""
    for name, workload in PUBLISHED.items():
        is_giant = num_params(workload.model) > 1e11
        yield from _predicted(_layouts(name), lambda each, is_giant=is_giant: ("pipe" in each.mesh) == is_giant)


def zero_before_fsdp() -> Iterator[Case]:
    """Rows that leave layers whole, with slower and slower links; the condition is their speed."""
    names = {row.strategy for row in WHOLE}
    for name, slower in itertools.product(PUBLISHED, SLOWER):
        whole = [each for each in _layouts(name, slower) if each.strategy in names]
        yield from _predicted(whole, lambda each: each.strategy != "fsdp", 1 / slower)


def shard_in_the_node() -> Iterator[Case]:
    """FSDP within nodes and replicated across them, against all other FSDP, with slower and slower links."""
    node = load_machine(MACHINE).gpus_per_node
    for name, slower in itertools.product(PUBLISHED, SLOWER):
        sharded = [each for each in _layouts(name, slower) if each.strategy == "fsdp"]
        yield from _predicted(sharded, lambda each: each.mesh["shard"] <= node, 1 / slower)


def recompute_last() -> Iterator[Case]:
    """Layouts that keep all activations against those that compute them again."""
    for name in PUBLISHED:
        yield from _predicted(_layouts(name), lambda each: not each.recomputes)
