"""BabyCNN: two convolution blocks and a two-layer head."""

from samestep.common.reference.features.applied import within
from samestep.common.reference.models.images import POOLINGS, Convolution
from samestep.common.reference.models.layers import ACTIVATIONS, Flatten, Layer, Linear, Sequential
from samestep.common.reference.step_context import StepContext
from samestep.common.workload.models.cnn import CnnSpec


def BabyCNN(spec: CnnSpec, context: StepContext) -> Sequential:  # noqa: N802 (a class in the other two mirrors)
    """Builds the network, [batch, height, width, channels] -> [batch, outputs].

    Args:
        spec: The sizes of the model.
        context: What its layers need to know about the current micro-batch.
    """
    activate, pool = ACTIVATIONS[spec.activation], POOLINGS[spec.pooling]
    blocks: list[Layer] = []
    for name, of_data in (("blocks/0", True), ("blocks/1", False)):
        convolution = Convolution(name, of_data, bias=spec.norm == "none")
        blocks += [convolution, *within(spec, f"{name}/norm", context), activate(), pool()]
    return Sequential([*blocks, Flatten(), Linear("hidden"), activate(), Linear("output")])
