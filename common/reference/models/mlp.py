"""The MLP: linear layers with GELU between them."""

from samestep.common.reference.models.batch_norm import batch_norm
from samestep.common.reference.models.layers import ACTIVATIONS, Flatten, Layer, Linear, Sequential, dropout
from samestep.common.workload.models.mlp import MlpSpec


def Mlp(spec: MlpSpec) -> Sequential:  # noqa: N802 (a class in the other two mirrors)
    """[batch, ...] -> [batch, outputs]."""
    layers: list[Layer] = [Flatten()]
    for layer in range(spec.layers - 1):
        layers += [Linear(f"layers/{layer}", bias=spec.norm == "none"), *batch_norm(spec.norm, f"layers/{layer}/norm")]
        layers += [ACTIVATIONS[spec.activation](), *dropout(spec.dropout, layer)]
    return Sequential([*layers, Linear(f"layers/{spec.layers - 1}")])
