"""The flag of mixed precision."""

import dataclasses

from samestep.common.flags import flag


@dataclasses.dataclass(frozen=True)
class PrecisionFlags:
    """The type of what goes into products."""

    precision: str | None = flag(
        None,
        "compute the forward and backward pass in this type, with parameters and their gradients in float32 "
        "(default: everything in --dtype)",
        choices=("bf16", "fp16"),
        changes_step=False,
    )

    def arithmetic(self, dtype: str) -> str:
        """Returns the type in which forward and backward are computed, in a run of a dtype."""
        return self.precision or dtype
