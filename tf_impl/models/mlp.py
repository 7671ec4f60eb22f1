"""The MLP: linear layers with GELU between them."""

import functools

import tensorflow as tf

from samestep.common.workload.models.mlp import MlpSpec
from samestep.tf_impl.models.inputs import Inputs, without_keys
from samestep.tf_impl.models.layers import ACTIVATIONS, Dropout, Linear, VariableFactory
from samestep.tf_impl.models.segmented import SegmentFunction, run_segments


class Mlp:
    """[batch, ...] -> [batch, outputs]."""

    def __init__(self, spec: MlpSpec, variable: VariableFactory) -> None:
        self.features, self.activate = spec.features, ACTIVATIONS[spec.activation]
        self.keys: tf.Tensor | None = None
        self.dropouts = [Dropout(spec.dropout, layer) for layer in range(spec.layers - 1)]
        self.layers = [Linear(variable, f"layers/{layer}") for layer in range(spec.layers)]

    def segments(self) -> dict[str, SegmentFunction]:
        """Makes one segment per layer."""
        return {f"layers/{i}": functools.partial(self._layer, i, self.keys) for i in range(len(self.layers))}

    def _layer(self, i: int, keys: tf.Tensor | None, x: tf.Tensor) -> tf.Tensor:
        x = self.layers[i](x)
        return self.dropouts[i](self.activate(x), keys) if i + 1 < len(self.layers) else x

    def __call__(self, x: Inputs) -> tf.Tensor:
        """Flattens its input, then runs all segments in order."""
        x, self.keys = without_keys(x)
        return run_segments(self.segments().values(), tf.reshape(x, (-1, self.features)))
