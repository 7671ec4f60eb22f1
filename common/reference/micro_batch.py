"""What the passes of a micro-batch need of the whole batch: set before its passes, and read inside them."""

import dataclasses

import numpy as np


@dataclasses.dataclass
class MicroBatch:
    """The present micro-batch.

    Attributes:
        keys: The key of each example, which decides what dropout keeps; None in evaluation.
    """

    keys: np.ndarray | None = None


MICRO_BATCH = MicroBatch()
"""Of this process."""
