"""What devices hold of parameters that torch shards along their first dim."""

import bisect
import dataclasses
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from samestep.common.axes.used import dividing
from samestep.common.costs.optimizer_state import optimizer_bytes
from samestep.common.costs.sizes import holder
from samestep.common.ledger import Footprint, Send
from samestep.common.mesh import AXES, Mesh
from samestep.common.strategy import Run
from samestep.common.techniques.used import sums_gradients
from samestep.common.workload.models.parameters import updated, with_gradients
from samestep.common.workload.models.spec import ModelSpec, Param, parameters_of


def shard_elements(params: Iterable[Param], shards: int) -> list[tuple[int, int]]:
    """Returns the elements of every shard of parameters that torch shards along their first dim, before padding.

    Args:
        params: What is sharded, in the neutral layout, where torch's first dim of a kernel is the last, unless it is a stack.
        shards: The number of shards; the first is the largest.

    Returns:
        The elements of a shard, and how many consecutive shards have that many.
    """
    columns: dict[int, int] = {}
    for param in params:
        rows = param.shape[-1] if param.role == "kernel" and not param.stacked else param.shape[0]
        columns[rows] = columns.get(rows, 0) + param.size // rows
    # A parameter's first shards are equal, the next one has the rest, and the others are empty.
    full = {rows: rows // -(-rows // shards) for rows in columns}
    starts = sorted({0, shards, *full.values(), *(min(shards, end + 1) for end in full.values())})
    return [(_shard(columns, shards, first), end - first) for first, end in itertools.pairwise(starts)]


def sharded_holders(run: Run, held: Iterable[Param], trained: Iterable[Param]) -> list[Footprint]:
    """Returns the footprints of the devices at one place along `pipe`, in the order of the mesh.

    Args:
        run: What is trained.
        held: The parameters, as split along other axes.
        trained: Those of them that are not frozen.
    """
    mesh, start, found = run.mesh, 0, list[Footprint]()
    within = math.prod(mesh.axis(name) for name, axis in AXES.items() if axis.order > AXES["shard"].order)
    learning = list(trained)
    nested = [list(held), learning, updated(learning), with_gradients(learning)]
    cuts = {len(each): shard_elements(each, mesh.shard) for each in {len(each): each for each in nested}.values()}
    ends = {size: list(itertools.accumulate(count for _, count in runs)) for size, runs in cuts.items()}
    for end in sorted({end for each in ends.values() for end in each}):
        elements, of_trained, moved, gradients = (
            cuts[size][bisect.bisect(ends[size], start)][0] for size in map(len, nested)
        )
        state, count = optimizer_bytes(run, of_trained, moved), (end - start) * within
        found.append(holder(run, elements, "each", count, of_trained, state, gradients))
        start = end
    times = mesh.size // (mesh.parts("layers") * mesh.shard * within)
    return found * times if len(found) > 1 else [dataclasses.replace(found[0], count=found[0].count * times)]


class ShardPart(NamedTuple):
    """A rank's part of parameters that are gathered together, in elements, padded to the size of the first rank's.

    Attributes:
        shared: The elements of parameters that all ranks have.
        of_experts: The elements of experts, where ranks have different ones; they are gathered separately.
    """

    shared: int
    of_experts: int = 0


def part_of(params: Mapping[str, Param], mesh: Mesh) -> ShardPart:
    """Returns a rank's part of parameters that are gathered together.

    Args:
        params: The parameters by name, as split along other axes.
        mesh: The mesh of all ranks.
    """
    groups, are_apart = (list[Param](), list[Param]()), mesh.parts("stacked") > 1
    for param in params.values():
        groups[param.stacked > 0 and are_apart].append(param)
    return ShardPart(*(shard_elements(each, mesh.shard)[0][0] if each else 0 for each in groups))


def is_sharded(mesh: Mesh) -> bool:
    """Returns whether parameters are sharded."""
    return mesh.shard > 1


def gathered_bytes(run: Run, part: ShardPart) -> int:
    """Returns the bytes of parameters that are gathered together, from all shards.

    Args:
        run: What is trained.
        part: The rank's part.
    """
    return run.mesh.shard * sum(part) * run.product_bytes


def copied_bytes(run: Run, parts: Sequence[ShardPart]) -> int:
    """Returns the bytes of the second copies of a rank's stages that exist while a step runs.

    Sharded stages arrive in a buffer and are copied out of it, one after the other; a buffer stays until the next one has
    arrived. Replicated ones are copied as well, except for experts (torch 2.13).

    Args:
        run: What is trained.
        parts: The rank's part of each of its stages.
    """
    if is_sharded(run.mesh):
        sizes = [gathered_bytes(run, part) for part in parts]
        return sum(sizes) + max(sizes)
    return sum(part.shared for part in parts) * run.item_bytes if run.mesh.replica_axes else 0


def gathers(run: Run, phase: str, part: ShardPart) -> list[Send]:
    """Returns the all-gathers of parameters along the axis `shard`; nothing if a rank has all of them.

    Experts, which are gathered separately, come last, and in the backward pass first (torch 2.13).

    Args:
        run: What is trained.
        phase: The phase of the step.
        part: The rank's part.
    """
    shards, sizes = run.mesh.shard, [elements * run.product_bytes for elements in part if elements]
    ordered = reversed(sizes) if phase == "backward" else sizes
    return [Send(phase, "all_gather", "shard", shards, size) for size in ordered if shards > 1]


def times_called(model: ModelSpec) -> list[int]:
    """Returns how often a forward pass calls each block; a block that is freed is gathered for each call."""
    return [model.facts.use_of(block.name).calls for block in model.facts.blocks if parameters_of(model, block)]


def gathered_again(model: ModelSpec, blocks: Sequence[ShardPart], frees: bool) -> list[ShardPart]:
    """Returns the blocks that are gathered for the backward pass, once for each call in the forward pass.

    A block that was not freed before is freed after the backward pass of each call. What the user's own code computes twice is
    gathered once for both. Gradients end at the first block that is trained, and the block before it is gathered in vain (torch
    2.13).

    Args:
        model: The model.
        blocks: The parts of its blocks.
        frees: Whether a block is freed after its forward pass.
    """
    held = [block for block in model.facts.blocks if parameters_of(model, block)]
    ends = next((n for n, block in enumerate(held) if model.facts.use_of(block.name).gives_gradient), len(held))
    calls = zip(blocks, times_called(model), strict=True)
    behind = reversed(list(calls)[max(0, ends - 1) :]) if frees else reversed(list(calls))
    return [block for block, times in behind for _ in range(times if frees else times - 1)]


def norm_of_all(run: Run, params: Mapping[str, Param]) -> Iterator[Send]:
    """Yields the sum over the shards, if there are any, of the norm of all gradients together; see `norms` for the arguments."""
    if is_sharded(run.mesh):
        yield Send("update", "all_reduce", "shard", run.mesh.shard, len(params) * run.item_bytes)


def summed_alone(run: Run, of_experts: int) -> Iterator[Send]:
    """Yields the sum of the gradients of experts, which are sent separately after the last pass, unless they are sharded.

    Args:
        run: What is trained.
        of_experts: The number of elements of experts.
    """
    group, size = run.mesh.group_along(run.mesh.expert_replica_axes)
    if of_experts and not is_sharded(run.mesh) and size > 1:
        yield Send("backward", "all_reduce", group, size, of_experts * run.item_bytes)


def reductions(run: Run, part: ShardPart, reverse: bool = False) -> list[Send]:
    """Returns the sums of gradients that a rank takes part in: along `shard`, which leaves its part; then among replicas.

    Args:
        run: What is trained.
        part: The rank's part; nothing is sent if it is empty.
        reverse: Whether experts, which are sent separately, come first.
    """
    mesh, sends = run.mesh, list[list[Send]]()
    scatter = "reduce_scatter" if sums_gradients(run.techniques) is None else "all_to_all"
    for elements, replicas in zip(part, (mesh.replica_axes, mesh.expert_replica_axes), strict=True):
        size = elements * run.item_bytes
        summed = [(scatter, "shard", mesh.shard, mesh.shard * size), ("all_reduce", *mesh.group_along(replicas), size)]
        sends.append([Send("backward", *each) for each in summed if size and each[2] > 1])
    return [*itertools.chain.from_iterable(reversed(sends) if reverse else sends)]


def norms(run: Run, params: Mapping[str, Param]) -> Iterator[Send]:
    """Yields the sums of the norm of each parameter's gradient over the ranks that have parts of it.

    Args:
        run: What is trained.
        params: The parameters by name.
    """
    for name in params:
        for axis in dividing(run.workload.model, run.mesh, name):
            yield Send("update", "all_reduce", axis, run.mesh.axis(axis), run.item_bytes)


def _shard(columns: Mapping[int, int], shards: int, shard: int) -> int:
    """Returns the elements of one shard, given the total number of columns for each number of rows."""
    return sum(
        min(-(-rows // shards), max(0, rows - shard * -(-rows // shards))) * each for rows, each in columns.items()
    )
