"""The flag of accumulation."""

import dataclasses

from samestep.common.flags import flag


@dataclasses.dataclass(frozen=True)
class AccumulationFlags:
    """In how many micro-batches a shard is taken."""

    accumulation_steps: int = flag(
        1, "micro-batches into which each shard is split; their gradients add up and are exchanged on the last", least=1
    )
