"""The rows that may win, the meshes of so many devices, and the micro-batches of a mesh."""

import dataclasses
import math
from collections.abc import Iterator, Sequence

from samestep.common.cell import Cell
from samestep.common.mesh import Mesh
from samestep.common.seconds.core_time import Taken
from samestep.common.strategy import Run

FRAMEWORK = "torch"
"""The framework whose rows are ranked."""


@dataclasses.dataclass(frozen=True)
class RankedStrategy:
    """A row of torch's catalogue that may win.

    Attributes:
        strategy: Its name.
        axis: Along which it splits the batch.
        sharding: What it shards along that axis: 1 the optimizer state, 2 also gradients, 3 also parameters.
    """

    strategy: str
    axis: str = "data"
    sharding: int = 0


FULLY = RankedStrategy("fsdp", "shard", 3)
WHOLE = (RankedStrategy("ddp"), RankedStrategy("zero1", sharding=1), RankedStrategy("zero2", "shard", 2), FULLY)
"""Rows that leave layers whole."""
SPLIT = (RankedStrategy("hybrid"), RankedStrategy("hybrid", "shard", 2))
"""Rows that split the model, beside a batch that is split."""
ALONE = (RankedStrategy("pp"), RankedStrategy("tp"))
"""Rows that split the model, and nothing else: by layers, or inside them."""
ONE = RankedStrategy("single")
"""The row of one device."""


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

    @property
    def cell(self) -> str:
        """What `samestep predict` takes."""
        given = dataclasses.asdict(self.run.options) if Taken.is_staged(self.run) else {}
        given |= {"accumulation_steps": self.run.passes} if self.run.passes > 1 else {}
        given |= {"recompute": "true"} if self.forward_passes > 1 else {}
        return str(Cell(self.run.framework, self.run.strategy.name).extended({**given, "mesh": self.run.mesh}))


def divisors(number: int) -> list[int]:
    """Returns what divides a number, in ascending order."""
    small = [count for count in range(1, math.isqrt(number) + 1) if number % count == 0]
    return sorted({*small, *(number // count for count in small)})


def meshes(base: Run, num_devices: int) -> Iterator[tuple[RankedStrategy, Mesh]]:
    """Every row on every mesh of that many devices whose layers can be split so, axes of one device left out.

    Args:
        base: The model.
        num_devices: All of them.
    """
    num_segments = len(base.workload.model.segments())
    for pipe in divisors(num_devices):
        for tensor in divisors(num_devices // pipe) if pipe <= num_segments else ():
            replicas = num_devices // pipe // tensor
            axes = [(name, size) for name, size in (("pipe", pipe), ("tensor", tensor)) if size > 1]
            for row in _rows(pipe, tensor, replicas):
                yield row, Mesh(tuple([(row.axis, replicas), *axes] if replicas > 1 or not axes else axes))
    for shards in divisors(num_devices)[1:-1]:  # HSDP
        yield FULLY, Mesh((("data", num_devices // shards), ("shard", shards)))


def _rows(pipe: int, tensor: int, replicas: int) -> Sequence[RankedStrategy]:
    if pipe == tensor == 1:
        return WHOLE if replicas > 1 else (ONE,)
    if replicas > 1:
        return SPLIT
    by_layers, inside = ALONE
    return (SPLIT[0] if pipe > 1 and tensor > 1 else by_layers if pipe > 1 else inside,)


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
            yield dataclasses.replace(run, options=type(run.options)(schedule=schedule, microbatches=count))
