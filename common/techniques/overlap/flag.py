"""The flag of overlap."""

import dataclasses

from samestep.common.flags import flag


@dataclasses.dataclass(frozen=True)
class OverlapFlags:
    """The flag that chooses when gradients are exchanged."""

    overlap: bool | None = flag(
        None,
        "exchange gradients in pieces during the backward pass; --no-overlap: all together after it (default: "
        "what the strategy's API does)",
        changes_step=False,
    )
