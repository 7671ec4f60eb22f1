"""The flag of batch normalisation."""

import dataclasses

from samestep.common.flags import flag

STATISTICS = ("local", "sync", "frozen")


@dataclasses.dataclass(frozen=True)
class BatchNormFlags:
    """Of which examples statistics are taken."""

    batch_norm: str = flag(
        "local",
        "statistics in batch normalisation, of ours with +norm=batch or of your own model: of each replica's shard, of the "
        "whole batch where the replicas can exchange them, or the running ones, frozen, as are other running buffers of yours",
        choices=STATISTICS,
        in_cell=True,
    )
