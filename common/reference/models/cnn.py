"""BabyCNN: two convolution blocks and a two-layer head."""

from samestep.common.reference.models.images import POOLINGS, Convolution
from samestep.common.reference.models.layers import ACTIVATIONS, Flatten, Linear, Sequential
from samestep.common.workload.models.cnn import CnnSpec


def BabyCNN(spec: CnnSpec) -> Sequential:  # noqa: N802 (a class in the other two mirrors)
    """[batch, height, width, channels] -> [batch, outputs]."""
    convolutions = (Convolution("blocks/0", of_data=True), Convolution("blocks/1"))
    activate, pool = ACTIVATIONS[spec.activation], POOLINGS[spec.pooling]
    blocks = [layer for convolution in convolutions for layer in (convolution, activate(), pool())]
    return Sequential([*blocks, Flatten(), Linear("hidden"), activate(), Linear("output")])
