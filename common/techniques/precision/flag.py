"""The flag of mixed precision."""

import dataclasses

from samestep.common.flags import flag


@dataclasses.dataclass(frozen=True)
class PrecisionFlags:
    """The type of what goes into products."""

    precision: str | None = flag(
        None,
        "compute forward and backward in two bytes a number, from parameters in float32, which get gradients in float32 "
        "(default: everything in the dtype)",
        choices=("bf16", "fp16"),
        changes_step=False,
    )

    def arithmetic(self, dtype: str) -> str:
        """Returns the type in which forward and backward are computed, in a run of a dtype."""
        return self.precision or dtype
