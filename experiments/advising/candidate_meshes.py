"""The rows that may win, the meshes of so many devices, and the micro-batches of a mesh."""

import dataclasses
import functools
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence

from samestep.common.cell import Cell
from samestep.common.mesh import Mesh
from samestep.common.seconds.core_time import Taken
from samestep.common.strategy import Run
from samestep.common.workload.models.spec import ModelSpec

FRAMEWORK = "torch"
"""The framework whose rows are ranked."""


@dataclasses.dataclass(frozen=True)
class RankedStrategy:
    """A row of torch's catalogue that may win, or a composition of its axes that people run.

    Attributes:
        strategy: Its name.
        axis: Along which it splits the batch.
        sharding: What it shards along that axis: 1 the optimizer state, 2 also gradients, 3 also parameters.
        composed: What it adds to the row, where no row runs that here; "" for the row itself.
        about: Who runs it, and what that is.
    """

    strategy: str
    axis: str = "data"
    sharding: int = 0
    composed: str = ""
    about: str = ""

    @property
    def title(self) -> str:
        """What tables call it."""
        return f"{self.strategy} + {self.composed}" if self.composed else self.strategy


FULLY = RankedStrategy("fsdp", "shard", 3)
WHOLE = (RankedStrategy("ddp"), RankedStrategy("zero1", sharding=1), RankedStrategy("zero2", "shard", 2), FULLY)
"""Rows that leave layers whole."""
SPLIT = (RankedStrategy("hybrid"), RankedStrategy("hybrid", "shard", 2))
"""Rows that split the model, beside a batch that is split."""
ALONE = (RankedStrategy("pp"), RankedStrategy("tp"))
"""Rows that split the model, and nothing else: by layers, or inside them."""
ONE = RankedStrategy("single")
"""The row of one device."""
POSITIONS, EXPERTS = RankedStrategy("cp"), RankedStrategy("ep")
"""Rows that split sequences, and experts."""
MEGATRON = RankedStrategy(
    "hybrid",
    sharding=2,
    composed="zero1",
    about="Megatron-LM does, with optimizer state sharded over what has the same parameters, and norms split along tensor",
)
SHARDED_EXPERTS = RankedStrategy(
    "fsdp",
    "shard",
    3,
    composed="ep",
    about="torchtitan does, with experts along expert and everything else sharded over that axis as well",
)
COMPOSED = (MEGATRON, SHARDED_EXPERTS)


@dataclasses.dataclass(frozen=True)
class ComposedOptions:
    """The options of a pipeline whose norms are split along `tensor`."""

    schedule: str = "1f1b"
    microbatches: int = 1
    sequence_parallel: bool = True


def row_of(strategy: str) -> RankedStrategy | None:
    """Returns the row that ranks a strategy of torch; None if it is none of these."""
    return next((row for row in (ONE, *WHOLE, *ALONE, *SPLIT) if row.strategy == strategy), None)


@dataclasses.dataclass(frozen=True)
class Candidate:
    """One way to take the step.

    Attributes:
        run: With its strategy, mesh, schedule and micro-batches.
        row: The row of the catalogue.
        microbatch_size: Examples of a pass of one replica.
        needed_bytes: What the device that needs most needs: all classes of memory at their peaks.
        knows_activations: Whether they are part of that.
    """

    run: Run
    row: RankedStrategy
    microbatch_size: int
    needed_bytes: int
    knows_activations: bool

    @property
    def forward_passes(self) -> int:
        """How often the forward pass of a block is computed: twice, if activations are computed again."""
        return 1 + self.run.techniques.recompute

    @functools.cached_property
    def layout(self) -> str:
        """Strategy and mesh."""
        return f"{self.run.framework}:{self.row.title} ({self.run.mesh})"

    @property
    def cell(self) -> str:
        """What `samestep predict` takes, of a row that it knows."""
        staged = {"schedule": None, "microbatches": None} if Taken.is_staged(self.run) else {}
        given = {name: getattr(self.run.options, name) for name in staged}
        given |= {"accumulation_steps": self.run.passes} if self.run.passes > 1 else {}
        given |= {"recompute": "true"} if self.forward_passes > 1 else {}
        return str(Cell(self.run.framework, self.run.strategy.name).extended({**given, "mesh": self.run.mesh}))


def divisors(number: int) -> list[int]:
    """Returns what divides a number, in ascending order."""
    small = [count for count in range(1, math.isqrt(number) + 1) if number % count == 0]
    return sorted({*small, *(number // count for count in small)})


def meshes(
    base: Run, num_devices: int, keep: Mapping[str, int] | None = None, is_wide: bool = False
) -> Iterator[tuple[RankedStrategy, Mesh]]:
    """Every row on every mesh of that many devices whose layers can be split so, axes of one device left out.

    Args:
        base: The model.
        num_devices: All of them.
        keep: Mesh axis -> its size, where it is not to be searched.
        is_wide: Whether sequences and experts may be split as well, and rows be composed.
    """
    model, keep = base.workload.model, keep or {}
    axes = ("pipe", "tensor", "context", "expert")
    most_pipe, most_heads, most_experts = _most_parts(model)

    def most(name: str, split: Mapping[str, int]) -> int:
        if name == "context":
            return max(1, most_heads // split["tensor"]) if is_wide else 1
        return {"pipe": most_pipe, "tensor": num_devices, "expert": most_experts if is_wide else 1}[name]

    def sizes(left: int, names: Sequence[str], split: dict[str, int]) -> Iterator[dict[str, int]]:
        if not names:
            yield split
            return
        name, *others = names
        for size in [keep[name]] if name in keep else divisors(left):
            if left % size == 0 and size <= most(name, split):
                yield from sizes(left // size, others, {**split, name: size})

    for split in sizes(num_devices, axes, {}):
        replicas = num_devices // math.prod(split.values())
        for row, batch in _rows(split, replicas, keep, is_wide):
            found = {**batch, **split}
            given = [(name, size) for name, size in found.items() if size > 1]
            mesh = Mesh(tuple(given or [(row.axis, 1)]))
            if all(mesh.axis(name) == size for name, size in keep.items()):
                yield row, mesh


def _most_parts(model: ModelSpec) -> tuple[int, int, int]:
    """Returns the most parts into which a model can be cut along pipe, context (heads that attend) and expert."""
    params = model.params().values()
    heads = max((param.groups for param in params if param.shares_input), default=0)
    heads = heads and max(param.groups for param in params)
    return len(model.segments()), heads or 1, max(param.stacked for param in params) or 1


def _rows(
    split: Mapping[str, int], replicas: int, keep: Mapping[str, int], is_wide: bool
) -> Iterator[tuple[RankedStrategy, dict[str, int]]]:
    """Yields the rows that split a model so, each with the axes of its batch."""
    pipe, tensor, context, expert = split["pipe"], split["tensor"], split["context"], split["expert"]
    if context * expert > 1 or (pipe * tensor > 1 and replicas > 1 and is_wide):
        yield MEGATRON, {"data": replicas}
    if pipe > 1 or tensor > 1:
        if context == replicas == expert == 1:
            by_layers, inside = ALONE
            yield SPLIT[0] if pipe > 1 and tensor > 1 else by_layers if pipe > 1 else inside, {}
        elif min(context, expert) > 1 and not keep.keys() >= {"context", "expert"}:
            return  # there are most of these meshes, and the composition is tried on all of them
        elif replicas == 1:
            yield SPLIT[0], {}
        else:
            # With experts there are many, of which replicas that keep all optimizer state rarely win.
            yield from ((row, {row.axis: replicas}) for row in (SPLIT if expert == 1 else SPLIT[1:]))
        return
    shards = [size for size in divisors(replicas) if size > 1 and keep.get("shard", size) == size]
    if expert > 1:
        yield from ((EXPERTS, {"data": replicas}),) if context == 1 else ()
        both = itertools.product((SHARDED_EXPERTS, FULLY), shards)
        yield from ((row, {"data": replicas // size, "shard": size}) for row, size in both)
    elif context > 1:
        yield POSITIONS, {"data": replicas}
        yield from ((FULLY, {"data": replicas // size, "shard": size}) for size in shards)
    elif replicas == 1:
        yield ONE, {}
    else:
        yield from ((row, {row.axis: replicas}) for row in WHOLE)
        yield from ((FULLY, {"data": replicas // size, "shard": size}) for size in shards if size < replicas)  # HSDP


def num_stage_ranks(run: Run) -> int:
    """Returns the number of ranks of a pipeline; 1 if there is none."""
    return run.mesh.pipe


def num_microbatches(run: Run) -> int:
    """Returns the micro-batches of each replica in a step."""
    return run.options.microbatches if Taken.is_staged(run) else run.passes


def with_microbatches(run: Run, rows: int, schedule: str) -> Iterator[Run]:
    """Yields the run with every size of a micro-batch that the schedule can take, the smallest first.

    Args:
        run: With its strategy and mesh.
        rows: The examples of a replica.
        schedule: The schedule of its pipeline; "" for a row without schedules.
    """
    ranks, segments = run.mesh.pipe, len(run.workload.model.segments())
    for size in divisors(rows):
        count = rows // size
        if not schedule:
            yield dataclasses.replace(run, techniques=run.techniques.in_passes(count))
        elif {
            "1f1b": count >= ranks,
            "gpipe": count < ranks,
            "interleaved_1f1b": 1 < ranks <= segments // 2 and count % ranks == 0,
        }[schedule]:
            yield dataclasses.replace(
                run, options=dataclasses.replace(run.options, schedule=schedule, microbatches=count)
            )
