"""The flag of dropout."""

import dataclasses

from samestep.common.flags import flag


@dataclasses.dataclass(frozen=True)
class DropoutFlags:
    """Whether a model has its dropout."""

    dropout: bool | None = flag(
        None,
        "--no-dropout switches dropout off, that of ours and of your own model with its other random draws, in every strategy "
        "and in the reference",
    )
