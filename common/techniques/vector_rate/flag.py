"""The flag of the learning rate of vectors."""

import dataclasses

from samestep.common.flags import MAX_FACTOR, flag


@dataclasses.dataclass(frozen=True)
class VectorRateFlags:
    """The learning rate of biases and of the scales of norms."""

    vector_rate: float = flag(
        1.0,
        "multiply the learning rate by this for parameters of fewer than two dimensions: biases and the scales of norms",
        above=0,
        most=MAX_FACTOR,
    )
