"""What the passes of a micro-batch need of the whole batch: set on a process before its passes, and read inside them."""

import dataclasses


@dataclasses.dataclass
class MicroBatch:
    """The present micro-batch of this process.

    Attributes:
        num_targets: The number of targets that count in the GLOBAL batch; 0 in a process that never sees a batch.
    """

    num_targets: int = 0


MICRO_BATCH = MicroBatch()
"""Of this process, whose passes follow each other."""
