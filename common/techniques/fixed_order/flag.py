"""The flag of the fixed order."""

import dataclasses

from samestep.common.flags import flag

MOST_LEAVES = 1024


@dataclasses.dataclass(frozen=True)
class FixedOrderFlags:
    """The flag that fixes the order in which gradients are added up."""

    fixed_order: int | None = flag(
        None,
        "cut the GLOBAL batch into this many micro-batches, a power of two, however many devices there are, and "
        "add up their gradients in one fixed order, so 1, 2, 4, ... devices, up to this number, compute the same bits "
        "(default: any order)",
        least=1,
        most=MOST_LEAVES,
        changes_step=False,
    )
