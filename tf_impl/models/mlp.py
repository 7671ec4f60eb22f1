"""The MLP: linear layers with GELU between them."""

import tensorflow as tf

from samestep.common.workload.models.mlp import MlpSpec
from samestep.tf_impl.models.inputs import Inputs, without_keys
from samestep.tf_impl.models.layers import ACTIVATIONS, Dropout, Linear, VariableFactory


class Mlp:
    """[batch, ...] -> [batch, outputs]."""

    def __init__(self, spec: MlpSpec, variable: VariableFactory) -> None:
        self.features, self.activate = spec.features, ACTIVATIONS[spec.activation]
        self.dropouts = [Dropout(spec.dropout, layer) for layer in range(spec.layers - 1)]
        self.layers = [Linear(variable, f"layers/{layer}") for layer in range(spec.layers)]

    def __call__(self, x: Inputs) -> tf.Tensor:
        """Flattens its input first."""
        x, keys = without_keys(x)
        x = tf.reshape(x, (-1, self.features))
        for layer, dropout in zip(self.layers[:-1], self.dropouts, strict=True):
            x = dropout(self.activate(layer(x)), keys)
        return self.layers[-1](x)
