"""The flag of dropout."""

import dataclasses

from samestep.common.flags import flag


@dataclasses.dataclass(frozen=True)
class DropoutFlags:
    """Whether a model has its dropout."""

    dropout: bool | None = flag(
        None,
        "--no-dropout switches off dropout, and in your own model all other random draws, in every strategy and "
        "in the reference",
    )
