"""Features: what a model may have, whatever the strategy, that depends on more than an example and the weights.

Each is a folder; here their flags come together.
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
    """What a run switches of the features of its model."""
