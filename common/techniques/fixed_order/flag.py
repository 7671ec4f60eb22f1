"""The flag of the fixed order."""

import dataclasses

from samestep.common.flags import flag

MOST_LEAVES = 1024


@dataclasses.dataclass(frozen=True)
class FixedOrderFlags:
    """In which order gradients are added up."""

    fixed_order: int | None = flag(
        None,
        "cut the GLOBAL batch into so many micro-batches, whatever the number of devices, and add their gradients up in one "
        "order: 1, 2, 4, ... devices, up to so many, compute the same bits; a power of two (default: any order)",
        least=1,
        most=MOST_LEAVES,
        changes_step=False,
    )
