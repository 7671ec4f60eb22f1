"""The flags of mixed precision."""

import dataclasses

from samestep.common.flags import flag

TWO_BYTES = "bfloat16"
"""The two-byte dtype that a run can keep; float16 would need a loss scaler."""


@dataclasses.dataclass(frozen=True)
class PrecisionFlags:
    """The flags that choose the dtypes of the factors of products."""

    precision: str | None = flag(
        None,
        "compute the forward and backward pass in this type, with parameters and their gradients in float32 "
        "(default: everything in --dtype)",
        choices=("bf16", "fp16"),
        changes_step=False,
    )
    keep_dtypes: bool = flag(
        False,
        "compute with the parameters of your own model in the dtype that its file gives them, such as bfloat16; they are "
        "trained in float32 (default: everything in --dtype)",
        changes_step=False,
    )

    def arithmetic(self, dtype: str) -> str:
        """Returns the dtype of the forward and backward passes, given the dtype of the run."""
        return "bf16" if self.keep_dtypes else self.precision or dtype

    def gathered(self, dtype: str) -> str:
        """Returns the dtype in which products get gathered parameters, given the dtype of the run."""
        return self.precision or dtype
