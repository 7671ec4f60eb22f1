"""Features: parts of a model, under any strategy, that depend on more than an example and the weights.

Each is a folder; their flags are combined here.
"""

import dataclasses

from samestep.common.features.batch_norm.flag import BatchNormFlags
from samestep.common.features.dropout.flag import DropoutFlags


@dataclasses.dataclass(frozen=True)
class Features(
    # A dataclass has the fields of its last base first.
    BatchNormFlags,
    DropoutFlags,
):
    """The flags by which a run switches features of its model."""
