"""The strategies that may be fastest, the meshes of a number of devices, and the micro-batches of a mesh."""

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence

from samestep.common.axes.used import hooks_of
from samestep.common.catalog import strategy_info
from samestep.common.cell import Cell
from samestep.common.mesh import AXES, SPLITS_MODEL, Mesh, divisors
from samestep.common.request import StrategyOptions
from samestep.common.strategy import Run
from samestep.common.techniques.used import flags_of

FRAMEWORK = "torch"
"""The framework whose rows are ranked."""


@dataclasses.dataclass(frozen=True)
class RankedStrategy:
    """A strategy of torch's catalogue that may be fastest, or a composition of its axes that is in use elsewhere.

    Attributes:
        strategy: Its name.
        in_shards: Whether devices with different examples hold shards of the parameters; otherwise they are replicas.
        sharding: What is sharded among them: 1 the optimizer state, 2 also gradients, 3 also parameters.
        shards_optimizer: Whether the row gets `--shard-optimizer`.
        composed: What it adds to the strategy, if no strategy here runs that; "" for the strategy itself.
        about: Who runs it, and how.
    """

    strategy: str
    in_shards: bool = False
    sharding: int = 0
    composed: str = ""
    about: str = ""
    shards_optimizer: bool = False

    @property
    def title(self) -> str:
        """Its name in tables."""
        if self.composed:
            return f"{self.strategy} + {self.composed}"
        return self.strategy + "+shard_optimizer=true" * self.shards_optimizer


FULLY = RankedStrategy("fsdp", True, 3)
WHOLE = (RankedStrategy("ddp"), RankedStrategy("zero1", sharding=1), RankedStrategy("zero2", True, 2), FULLY)
"""The strategies that leave layers whole."""
SPLIT = (RankedStrategy("hybrid"), RankedStrategy("hybrid", True, 2))
"""The strategies that split the model and the batch."""
SPREAD = RankedStrategy("hybrid", sharding=1, shards_optimizer=True)
"""The strategy that spreads the optimizer state over its replicas, without splitting experts."""
ALONE = (RankedStrategy("pp"), RankedStrategy("tp"))
"""The strategies that only split the model: by layers, or inside them."""
ONE = RankedStrategy("single")
"""The strategy for one device."""
POSITIONS, EXPERTS = RankedStrategy("cp"), RankedStrategy("ep")
"""The strategies that split sequences, and experts."""
MEGATRON = RankedStrategy(
    "hybrid",
    sharding=2,
    composed="zero1",
    about="Megatron-LM does, with optimizer state sharded over what has the same parameters, and norms split along tensor",
)
SHARDED_EXPERTS = RankedStrategy(
    "fsdp",
    True,
    3,
    composed="ep",
    about="torchtitan does, with experts along expert and everything else sharded over that axis as well",
)
COMPOSED = (MEGATRON, SHARDED_EXPERTS)
ROWS = (ONE, *WHOLE, *ALONE, POSITIONS, EXPERTS, SPREAD, *SPLIT)
"""The strategies above that are in the catalogue."""


@dataclasses.dataclass(frozen=True)
class ComposedOptions(StrategyOptions):
    """The options of a pipeline whose norms are split along `tensor`; `held.py` says who holds its optimizer state."""

    schedule: str = "1f1b"
    microbatches: int = 1
    sequence_parallel: bool = True
    shard_optimizer: bool = False


@dataclasses.dataclass(frozen=True)
class Candidate:
    """One way to take the step.

    Attributes:
        run: The run, with its strategy, mesh, schedule and micro-batches.
        row: The ranked strategy.
        microbatch_size: The number of examples of a pass of one replica.
        needed_bytes: The bytes that the fullest device needs, with all classes of memory at their peaks.
        knows_activations: Whether activations are included.
    """

    run: Run
    row: RankedStrategy
    microbatch_size: int
    needed_bytes: int
    knows_activations: bool

    @property
    def forward_passes(self) -> int:
        """How often the forward pass of a block is computed: 2 if activations are recomputed."""
        return 1 + self.run.techniques.recompute

    @functools.cached_property
    def layout(self) -> str:
        """The strategy and the mesh, in one line."""
        return f"{self.run.framework}:{self.row.title} ({self.run.mesh})"

    @property
    def cell(self) -> str:
        """The cell for `samestep predict`, if it knows the strategy."""
        asked, given = self.run.asked, dict[str, object]()
        if asked.schedule:
            given = {"schedule": asked.schedule, "microbatches": asked.microbatches}
        given |= {"shard_optimizer": "true"} if self.row.shards_optimizer else {}
        given |= {"accumulation_steps": self.run.passes} if self.run.passes > 1 else {}
        given |= {"recompute": "true"} if self.forward_passes > 1 else {}
        given |= flags_of("periods", self.run.techniques)
        return str(Cell(self.run.framework, self.run.strategy.name).extended({**given, "mesh": self.run.mesh}))


def meshes(
    base: Run, num_devices: int, keep: Mapping[str, int] | None = None, is_wide: bool = False
) -> Iterator[tuple[RankedStrategy, Mesh]]:
    """Yields every strategy on every possible mesh of a number of devices, without axes of one device.

    Args:
        base: The model.
        num_devices: The number of all devices.
        keep: Mesh axis -> its size, if it is fixed.
        is_wide: Whether sequences and experts may be split as well, and strategies be composed.
    """
    model, kept = base.workload.model, keep or {}
    searched = SPLITS_MODEL if is_wide else SPLITS_MODEL[:2]
    axes = [name for cut in searched for name, axis in AXES.items() if cut in axis.cuts]

    def sizes(left: int, names: Sequence[str], split: dict[str, int]) -> Iterator[dict[str, int]]:
        if not names:
            yield split
            return
        name, *others = names
        most = hooks_of(name).most(model, Mesh(tuple(split.items())))
        for size in [kept[name]] if name in kept else divisors(left):
            if left % size == 0 and size <= most:
                yield from sizes(left // size, others, {**split, name: size})

    for split in sizes(num_devices, axes, {}):
        replicas = num_devices // math.prod(split.values())
        for row, shards in _rows(Mesh.of_replicas(1, split=split), replicas, kept, is_wide):
            mesh = Mesh.of_replicas(replicas // shards, shards, split)
            if all(mesh.axis(name) == size for name, size in kept.items()):
                yield row, mesh


def _rows(split: Mesh, replicas: int, keep: Mapping[str, int], is_wide: bool) -> Iterator[tuple[RankedStrategy, int]]:
    """Yields the rows that can split a model this way, each with the number of shards among its replicas."""
    if not split.in_order:
        yield from ((row, replicas if row.in_shards else 1) for row in (WHOLE if replicas > 1 else (ONE,)))
        yield from ((FULLY, size) for size in divisors(replicas) if 1 < size < replicas)  # HSDP
        return
    beside = split.batch_axes  # along which gradients are summed as well
    has_experts = split.parts("stacked") > 1
    if is_wide and (beside or replicas > 1):
        yield from [(MEGATRON, 1)] * (has_experts or split.tensor > 1)  # without either, it equals the row
        yield from [(SPREAD, 1)] * (not has_experts)
    if _takes(FULLY, split):
        yield from ((row, 1) for row in (EXPERTS, POSITIONS) if _takes(row, split))
        sharded = (SHARDED_EXPERTS, FULLY) if has_experts else (FULLY,)
        yield from itertools.product(sharded, [size for size in divisors(replicas) if size > 1])
    elif not beside and replicas == 1:
        yield next(row for row in (*ALONE, SPLIT[0]) if _takes(row, split)), 1
    elif len(beside) > 1 and not keep.keys() >= {*beside}:
        return  # most meshes are of this kind, and the composition is tried on all of them
    elif replicas == 1:
        yield SPLIT[0], 1
    else:
        # With experts there are many meshes, and replicas that keep all optimizer state rarely win on them.
        rows = SPLIT if split.expert_replica_axes == split.replica_axes else SPLIT[1:]
        yield from ((row, replicas if row.in_shards else 1) for row in rows)


def _takes(row: RankedStrategy, split: Mesh) -> bool:
    """Returns whether a row splits a model along all axes of a mesh, as its line in the catalogue says."""
    return {*split.in_order} <= {*strategy_info(FRAMEWORK, row.strategy).axes}


def microbatch_counts(run: Run, rows: int, schedule: str) -> list[int]:
    """Returns the numbers of micro-batches that a schedule can take, beginning with the smallest micro-batches.

    Args:
        run: With its strategy and mesh.
        rows: The examples of a replica.
        schedule: The schedule of its pipeline; "" for a row without schedules.
    """
    ranks, segments = run.mesh.parts("layers"), len(run.workload.model.segments())
    takes: Callable[[int], bool] = {
        "": lambda count: True,
        "1f1b": lambda count: count >= ranks,
        "gpipe": lambda count: count < ranks,
        "interleaved_1f1b": lambda count: 1 < ranks <= segments // 2 and count % ranks == 0,
    }[schedule]
    return [count for count in reversed(divisors(rows)) if takes(count)]
