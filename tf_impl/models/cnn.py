"""BabyCNN: two convolution blocks and a two-layer head."""

import tensorflow as tf

from samestep.common.workload.models.cnn import CnnSpec
from samestep.tf_impl.models.layers import ACTIVATIONS, POOLINGS, Convolution, Linear, VariableFactory


class BabyCNN:
    """[batch, height, width, channels] -> [batch, outputs]."""

    def __init__(self, spec: CnnSpec, variable: VariableFactory) -> None:
        self.image = spec.image
        self.activate, self.pool = ACTIVATIONS[spec.activation], POOLINGS[spec.pooling]
        self.blocks = [Convolution(variable, f"blocks/{block}") for block in range(2)]
        self.hidden = Linear(variable, "hidden")
        self.output = Linear(variable, "output")

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        """Computes logits; channels come last in the neutral layout and in TensorFlow's."""
        x = tf.reshape(x, (-1, *self.image))
        for block in self.blocks:
            x = self.pool(self.activate(block(x)))
        x = tf.reshape(x, (-1, x.shape[1] * x.shape[2] * x.shape[3]))
        return self.output(self.activate(self.hidden(x)))
