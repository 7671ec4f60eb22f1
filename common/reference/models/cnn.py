"""BabyCNN: two convolution blocks and a two-layer head."""

from samestep.common.reference.models.layers import AveragePool, Convolution, Flatten, Gelu, Linear, Sequential
from samestep.common.workload.models.cnn import CnnSpec


def BabyCNN(spec: CnnSpec) -> Sequential:  # noqa: N802 (a class in the other two mirrors)
    """[batch, height, width, channels] -> logits [batch, classes]."""
    blocks = [layer for block in range(2) for layer in (Convolution(f"blocks/{block}"), Gelu(), AveragePool())]
    return Sequential([*blocks, Flatten(), Linear("hidden"), Gelu(), Linear("output")])
