"""The flag of batch normalization."""

import dataclasses

from samestep.common.flags import flag

STATISTICS = ("local", "sync", "frozen")


@dataclasses.dataclass(frozen=True)
class BatchNormFlags:
    """The flag that chooses the examples from which statistics are computed."""

    batch_norm: str = flag(
        "local",
        "which statistics batch normalization uses, in our models with +norm=batch and in yours: those of each "
        "replica's shard, those of the whole batch where replicas can exchange them, or the frozen running ones "
        "(other running buffers of your model are frozen as well)",
        choices=STATISTICS,
        in_cell=True,
    )
