"""The flag of recomputation."""

import dataclasses
import functools
from typing import Self

from samestep.common.flags import flag


@dataclasses.dataclass(frozen=True)
class RecomputeFlags:
    """The flag that makes segments be recomputed."""

    recompute: bool = flag(
        False,
        "keep only the inputs of the model's inner segments, and recompute the rest in the backward pass",
        changes_step=False,
    )

    @functools.lru_cache(maxsize=256)  # a search asks thousands of times  # noqa: B019
    def computing_twice(self) -> Self:
        """Returns the same techniques, with the inner segments recomputed."""
        return dataclasses.replace(self, recompute=True)
