"""The flag of the parameters that decay."""

import dataclasses

from samestep.common.flags import flag

ALL, MATRICES = "all", "matrices"


@dataclasses.dataclass(frozen=True)
class DecayFlags:
    """Which parameters decay."""

    decayed: str = flag(
        ALL,
        "the parameters that weight decay applies to; matrices: those of two and more dimensions, no biases and no scales of "
        "norms",
        choices=(ALL, MATRICES),
    )
