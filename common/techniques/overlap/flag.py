"""The flag of overlap."""

import dataclasses

from samestep.common.flags import flag


@dataclasses.dataclass(frozen=True)
class OverlapFlags:
    """When gradients are exchanged."""

    overlap: bool | None = flag(
        None,
        "exchange gradients in pieces while the backward pass still runs, or all together after it (default: as the "
        "strategy's API does)",
        changes_step=False,
    )
