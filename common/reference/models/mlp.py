"""The MLP: linear layers with activations between them."""

from samestep.common.reference.features.applied import behind, within
from samestep.common.reference.models.layers import ACTIVATIONS, Flatten, Layer, Linear, Sequential
from samestep.common.reference.step_context import StepContext
from samestep.common.workload.models.mlp import MlpSpec


def Mlp(spec: MlpSpec, context: StepContext) -> Sequential:  # noqa: N802 (a class in the other two mirrors)
    """Builds the network, [batch, ...] -> [batch, outputs].

    Args:
        spec: The sizes of the model.
        context: What its layers need to know about the current micro-batch.
    """
    layers: list[Layer] = [Flatten()]
    for layer in range(spec.layers - 1):
        layers += [Linear(f"layers/{layer}", bias=spec.norm == "none"), *within(spec, f"layers/{layer}/norm", context)]
        layers += [ACTIVATIONS[spec.activation](), *behind(spec, layer, context)]
    return Sequential([*layers, Linear(f"layers/{spec.layers - 1}")])
