"""The flag of accumulation."""

import dataclasses
import functools
from typing import Self

from samestep.common.flags import flag


@dataclasses.dataclass(frozen=True)
class AccumulationFlags:
    """The number of micro-batches of a shard."""

    accumulation_steps: int = flag(
        1,
        "how many micro-batches each shard is split into; their gradients are added up and exchanged after the last one",
        least=1,
    )

    @functools.lru_cache(maxsize=256)  # a search asks thousands of times  # noqa: B019
    def in_passes(self, count: int) -> Self:
        """Returns the same techniques with a number of micro-batches for each shard."""
        return dataclasses.replace(self, accumulation_steps=count)
