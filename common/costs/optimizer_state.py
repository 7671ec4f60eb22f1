"""The bytes of optimizer state, for a number of elements of split parameters, or for whole parameters."""

import functools
import heapq
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence

from samestep.common.ledger import MOST_SENDS, Send
from samestep.common.request import DTYPES
from samestep.common.strategy import Run
from samestep.common.workload.models.parameters import num_trained, trained, updated
from samestep.common.workload.models.spec import ModelSpec, Param
from samestep.common.workload.optimizers.spec import OptimizerSpec


def optimizer_bytes(run: Run, elements: int, num_moved: int | None = None) -> int:
    """Returns the bytes of optimizer state for some elements: slots, and master weights if the weights have two bytes.

    Args:
        run: What is trained.
        elements: The number of elements; each has the same share of the state of all trained parameters.
        num_moved: How many of them an update does not skip, if that is known.

    References:
        Rajbhandari et al., arXiv 1910.02054, section 3.1 (K = 12 for Adam).
    """
    kept, num_learning, num_updated = _kept(run.workload.model, run.optimizer)
    some, every = (elements, num_learning) if num_moved is None else (num_moved, num_updated)
    masters = elements if run.weights is not None else 0
    return (some * kept // max(1, every) + masters) * DTYPES[run.dtype]


@functools.lru_cache(maxsize=8)
def _kept(model: ModelSpec, optimizer: OptimizerSpec) -> tuple[int, int, int]:
    """Returns how many numbers a model's optimizer state, its trained parameters, and those that updates do not skip have."""
    learning = trained(model.params()).values()
    return _num_kept(learning, optimizer), num_trained(learning), num_trained(updated(learning))


def _num_kept(learning: Iterable[Param], optimizer: OptimizerSpec) -> int:
    return sum(math.prod(shape) for param in updated(learning) for shape in optimizer.state(param).values())


def state_bytes(run: Run, params: Iterable[Param]) -> int:
    """Returns the bytes of optimizer state of some whole parameters, which may differ in how much state they have.

    Args:
        run: What is trained.
        params: The parameters; frozen ones have none.
    """
    learning = [param for param in params if not param.frozen]
    masters = num_trained(learning) if run.weights is not None else 0
    return (_num_kept(learning, run.optimizer) + masters) * DTYPES[run.dtype]


def owned(run: Run, groups: Iterable[Iterable[Param]], ranks: int) -> list[tuple[Sequence[Param], int]]:
    """Returns the parameters that each rank updates if ranks share the update, with the number of consecutive ranks alike.

    Within each group, the largest parameter that is left goes to the first of the ranks that have the least. Frozen
    parameters are assigned as well, but no rank updates them.

    Args:
        run: What is trained.
        groups: The parameters that all these ranks hold.
        ranks: The number of ranks.
    """
    handed = [each for group in groups for each in sorted(group, key=lambda param: param.size, reverse=True)]
    least = [(0, rank) for rank in range(min(ranks, len(handed)))]
    updated: list[list[Param]] = [[] for _ in least]
    for param in handed:
        size, rank = least[0]
        updated[rank] += [] if param.frozen else [param]
        heapq.heapreplace(least, (size + param.size, rank))
    alike = itertools.groupby(updated, lambda own: (num_trained(own), state_bytes(run, own)))
    found: list[tuple[Sequence[Param], int]] = [(each[0], len(each)) for each in (list(equal) for _, equal in alike)]
    return found + ([((), ranks - len(least))] if ranks > len(least) else [])


def spreads_state(run: Run) -> bool:
    """Returns whether replicas divide the optimizer state of the parameters that all of them hold; some rows have this option."""
    return run.asked.shard_optimizer


def owned_by_replicas(run: Run, params: Iterable[Param]) -> list[tuple[Sequence[Param], int]]:
    """Returns what `owned` returns, for replicas that divide the optimizer state; nothing if each updates all that it holds.

    Args:
        run: What is trained.
        params: The parameters that they hold.
    """
    if not spreads_state(run):
        return []
    return owned(run, [params], math.prod(map(run.mesh.axis, run.mesh.replica_axes)))


def broadcasts_of(
    run: Run, owners: Iterable[tuple[Sequence[Param], int]], group: str, ranks: int, least: int = 0
) -> Iterator[Send]:
    """Yields the broadcasts of the parameters that each rank updated.

    Args:
        run: What is trained.
        owners: As `owned` returns them.
        group: The ranks, as a ledger names them; the roots of broadcasts are those of the first group.
        ranks: The number of ranks.
        least: The bytes that a rank without parameters broadcasts.
    """
    rank, members = 0, run.mesh.members(group, ranks, 0)
    for own, count in owners:
        size, roots = (num_trained(own) * run.item_bytes or least) * count, members[rank : rank + count]
        source = ",".join(map(str, roots)) if count <= MOST_SENDS else ""
        if size:
            yield Send("update", "broadcast", group, ranks, size, count, source=source)
        rank += count
