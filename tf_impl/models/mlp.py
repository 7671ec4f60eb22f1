"""The MLP: linear layers with GELU between them."""

import tensorflow as tf

from samestep.common.workload.models.mlp import MlpSpec
from samestep.tf_impl.models.layers import ACTIVATIONS, Linear, VariableFactory


class Mlp:
    """[batch, ...] -> [batch, outputs]."""

    def __init__(self, spec: MlpSpec, variable: VariableFactory) -> None:
        self.features, self.activate = spec.features, ACTIVATIONS[spec.activation]
        self.layers = [Linear(variable, f"layers/{layer}") for layer in range(spec.layers)]

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        """Flattens its input first."""
        x = tf.reshape(x, (-1, self.features))
        for layer in self.layers[:-1]:
            x = self.activate(layer(x))
        return self.layers[-1](x)
