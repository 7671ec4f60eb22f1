"""The flag of recomputation."""

import dataclasses

from samestep.common.flags import flag


@dataclasses.dataclass(frozen=True)
class RecomputeFlags:
    """Whether segments are computed again."""

    recompute: bool = flag(
        False,
        "keep only the inputs of the model's inner segments, and compute the rest again in the backward pass",
        changes_step=False,
    )
