"""BabyCNN: two convolution blocks and a two-layer head."""

import tensorflow as tf

from samestep.common.workload.models.cnn import CnnSpec
from samestep.tf_impl.features.applied import Within, within
from samestep.tf_impl.models.layers import ACTIVATIONS, POOLINGS, Convolution, Linear, VariableFactory
from samestep.tf_impl.models.segmented import SegmentFunction, run_segments


class BabyCNN:
    """A small convolutional network: [batch, height, width, channels] -> [batch, outputs]."""

    def __init__(self, spec: CnnSpec, variable: VariableFactory) -> None:
        self.image = spec.image
        self.activate, self.pool = ACTIVATIONS[spec.activation], POOLINGS[spec.pooling]
        self.training, self.norms = True, dict[int, Within]()
        self.blocks = []
        for block in range(2):
            self.blocks.append(Convolution(variable, f"blocks/{block}", bias=spec.norm == "none"))
            if (norm := within(spec, variable, f"blocks/{block}/norm")) is not None:
                self.norms[block] = norm
        self.hidden = Linear(variable, "hidden")
        self.output = Linear(variable, "output")

    def segments(self) -> dict[str, SegmentFunction]:
        """Returns two blocks and two linear layers; channels come last in the neutral layout and in TensorFlow's."""
        return {
            "blocks/0": lambda x: self._block(0, tf.reshape(x, (-1, *self.image))),
            "blocks/1": lambda x: self._flat(self._block(1, x)),
            "hidden": lambda x: self.activate(self.hidden(x)),
            "output": self.output,
        }

    def _block(self, i: int, x: tf.Tensor) -> tf.Tensor:
        x = self.blocks[i](x)
        x = self.norms[i](x, self.training) if i in self.norms else x
        return self.pool(self.activate(x))

    def _flat(self, x: tf.Tensor) -> tf.Tensor:
        return tf.reshape(x, (-1, x.shape[1] * x.shape[2] * x.shape[3]))

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        """Runs all segments in order."""
        return run_segments(self.segments().values(), x)
