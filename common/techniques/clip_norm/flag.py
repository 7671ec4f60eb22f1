"""The flag of clipping."""

import dataclasses

from samestep.common.flags import MAX_FACTOR, flag


@dataclasses.dataclass(frozen=True)
class ClipFlags:
    """The largest norm of a gradient."""

    clip_norm: float | None = flag(
        None,
        "scale a gradient with a larger global norm down to this norm (default: no clipping)",
        above=0,
        most=MAX_FACTOR,
    )

    @property
    def need_norm(self) -> bool:
        """Returns whether the norm of the whole gradient is needed in each step."""
        return self.clip_norm is not None
