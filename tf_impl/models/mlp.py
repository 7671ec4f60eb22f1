"""The MLP: linear layers with GELU between them."""

import functools

import tensorflow as tf

from samestep.common.workload.models.mlp import MlpSpec
from samestep.tf_impl.models.layers import ACTIVATIONS, Linear, VariableFactory
from samestep.tf_impl.models.segmented import SegmentFunction, run_segments


class Mlp:
    """[batch, ...] -> [batch, outputs]."""

    def __init__(self, spec: MlpSpec, variable: VariableFactory) -> None:
        self.features, self.activate = spec.features, ACTIVATIONS[spec.activation]
        self.layers = [Linear(variable, f"layers/{layer}") for layer in range(spec.layers)]

    def segments(self) -> dict[str, SegmentFunction]:
        """Makes one segment per layer."""
        return {f"layers/{i}": functools.partial(self._layer, i) for i in range(len(self.layers))}

    def _layer(self, i: int, x: tf.Tensor) -> tf.Tensor:
        x = self.layers[i](x)
        return self.activate(x) if i + 1 < len(self.layers) else x

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        """Flattens its input, then runs all segments in order."""
        return run_segments(self.segments().values(), tf.reshape(x, (-1, self.features)))
