"""The families of rows that the textbooks rank among each other. Imports no framework."""

from samestep.common.families import Family

ZERO = Family(
    "ZeRO",
    differs={
        "speed": "on cores that the ranks share, speeds change places from run to run",
        "memory": "fully_shard shards the parameters at rest under zero2 as well",
        "peak": "on few devices a shard is large, and zero2 holds all parameters and one more block in its buffer",
        "sent": "beside small tensors, the padding of uneven shards and the framing of messages count",
    },
    page="docs/pytorch.md#why-the-measured-order-differs-from-the-textbooks-order",
)
