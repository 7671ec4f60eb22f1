"""The flag of the parameters that decay."""

import dataclasses

from samestep.common.flags import flag

ALL, MATRICES = "all", "matrices"


@dataclasses.dataclass(frozen=True)
class DecayFlags:
    """The flag that chooses the parameters that decay."""

    decayed: str = flag(
        ALL,
        "which parameters weight decay applies to: all, or only those with two or more dimensions, which leaves out "
        "biases and the scales of norms",
        choices=(ALL, MATRICES),
    )
