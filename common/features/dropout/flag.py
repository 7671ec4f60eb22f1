"""The flag of dropout."""

import dataclasses

from samestep.common.flags import flag


@dataclasses.dataclass(frozen=True)
class DropoutFlags:
    """The flag that switches dropout off."""

    dropout: bool | None = flag(
        None,
        "--no-dropout switches off dropout, and in your own model all other random draws, in every strategy and "
        "in the reference",
    )
