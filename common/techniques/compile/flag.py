"""The flag of compilation."""

import dataclasses

from samestep.common.flags import flag


@dataclasses.dataclass(frozen=True)
class CompileFlags:
    """The flag that compiles a step."""

    compile: bool = flag(
        False,
        "compile the forward and backward pass, with torch.compile or XLA; this takes some seconds before the first step",
        changes_step=False,
    )
