"""What devices hold of parameters that torch shards along their first dim."""

import bisect
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from samestep.common.costs.sizes import holder
from samestep.common.ledger import Footprint, Send
from samestep.common.strategy import Run
from samestep.common.techniques.used import sums_gradients
from samestep.common.workload.models.spec import Role


def shard_elements(shapes: Iterable[tuple[Sequence[int], Role]], shards: int) -> list[tuple[int, int]]:
    """Returns the elements of every shard of parameters that torch shards along their first dim, before padding.

    Args:
        shapes: The shape of each parameter in the neutral layout, where torch's first dim of a kernel is the last; its role.
        shards: The number of shards; the first is the largest.

    Returns:
        Elements of a shard, and how many shards in a row have so many.
    """
    columns: dict[int, int] = {}
    for shape, role in shapes:
        rows = shape[-1] if role == "kernel" else shape[0]
        columns[rows] = columns.get(rows, 0) + math.prod(shape) // rows
    # Of a parameter's shards the first ones are equal, the next one has what is left, and the others have nothing.
    full = {rows: rows // -(-rows // shards) for rows in columns}
    starts = sorted({0, shards, *full.values(), *(min(shards, end + 1) for end in full.values())})
    return [(_shard(columns, shards, first), end - first) for first, end in itertools.pairwise(starts)]


def sharded_holders(
    run: Run, held: Iterable[tuple[int, int]], trained: Iterable[tuple[int, int]], times: int = 1
) -> Iterator[Footprint]:
    """Yields the footprints of devices that hold shards.

    Args:
        run: What is trained.
        held: As `shard_elements` returns them, of all parameters.
        trained: The same of those that are not frozen.
        times: By how much there are more devices of each.
    """
    start, both = 0, (list(held), list(trained))
    ends = [list(itertools.accumulate(count for _, count in runs)) for runs in both]
    for end in sorted({*ends[0], *ends[1]}):
        elements, learning = (runs[bisect.bisect(of, start)][0] for runs, of in zip(both, ends, strict=True))
        yield holder(run, elements, count=(end - start) * times, trained=learning)
        start = end


def gathers(run: Run, phase: str, elements: int) -> list[Send]:
    """Returns what a rank hands over where parameters are gathered along the axis `shard`: nothing if it has them all.

    Args:
        run: What is trained.
        phase: The phase of the step.
        elements: The numbers of the rank's part, padded.
    """
    shards = run.mesh.shard
    return [Send(phase, "all_gather", "shard", shards, elements * run.product_bytes)] if shards > 1 else []


def reductions(run: Run, elements: int) -> list[Send]:
    """Returns what a rank hands over where gradients are summed: along `shard`, of which its part is left; then among replicas.

    Args:
        run: What is trained.
        elements: The numbers of the rank's part, padded; nothing is sent of none.
    """
    size, mesh = elements * run.item_bytes, run.mesh
    scatter = "reduce_scatter" if sums_gradients(run.techniques) is None else "all_to_all"
    summed = [(scatter, "shard", mesh.shard, mesh.shard * size)]
    summed.append(("all_reduce", *mesh.group_along(mesh.replica_axes), size))
    return [Send("backward", *each) for each in summed if size and each[2] > 1]


def _shard(columns: Mapping[int, int], shards: int, shard: int) -> int:
    """Returns the elements of one shard of parameters with so many rows, and so many columns in all."""
    return sum(
        min(-(-rows // shards), max(0, rows - shard * -(-rows // shards))) * each for rows, each in columns.items()
    )
