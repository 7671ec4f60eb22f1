"""Techniques: how a step is taken, under any strategy. Each is a folder; their flags are combined here."""

import dataclasses

from samestep.common.flags import flags
from samestep.common.techniques.accumulation.flag import AccumulationFlags
from samestep.common.techniques.clip_norm.flag import ClipFlags
from samestep.common.techniques.compile.flag import CompileFlags
from samestep.common.techniques.compress.flag import CompressFlags
from samestep.common.techniques.decayed.flag import DecayFlags
from samestep.common.techniques.fixed_order.flag import FixedOrderFlags
from samestep.common.techniques.local_steps.flag import LocalStepsFlags
from samestep.common.techniques.overlap.flag import OverlapFlags
from samestep.common.techniques.precision.flag import PrecisionFlags
from samestep.common.techniques.recompute.flag import RecomputeFlags
from samestep.common.techniques.schedule.flag import ScheduleFlags
from samestep.common.techniques.vector_rate.flag import VectorRateFlags


@dataclasses.dataclass(frozen=True)
class Techniques(
    # A dataclass has the fields of its last base first.
    LocalStepsFlags,
    FixedOrderFlags,
    CompressFlags,
    OverlapFlags,
    CompileFlags,
    RecomputeFlags,
    PrecisionFlags,
    VectorRateFlags,
    DecayFlags,
    ScheduleFlags,
    ClipFlags,
    AccumulationFlags,
):
    """How a step is taken, under any strategy that supports it."""

    def passes_of(self, replicas: int) -> int:
        """Returns the number of micro-batches of each shard, given the number of shards; a step takes one pass for each."""
        return self.accumulation_steps if self.fixed_order is None else self.fixed_order // replicas

    def of_reference(self) -> "Techniques":
        """Returns the techniques that change the step; the others only change how it is computed and rounded."""
        others = {name: field.default for name, field in flags(self).items() if not field.metadata["changes_step"]}
        return dataclasses.replace(self, **others)
