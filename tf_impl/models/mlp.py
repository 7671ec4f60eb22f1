"""The MLP: linear layers with GELU between them."""

import functools

import tensorflow as tf

from samestep.common.workload.models.mlp import MlpSpec
from samestep.tf_impl.features.applied import Within, behind, within
from samestep.tf_impl.models.inputs import Inputs, without_keys
from samestep.tf_impl.models.layers import ACTIVATIONS, Linear, VariableFactory
from samestep.tf_impl.models.segmented import SegmentFunction, run_segments


class Mlp:
    """A multilayer perceptron: [batch, ...] -> [batch, outputs]."""

    def __init__(self, spec: MlpSpec, variable: VariableFactory) -> None:
        self.features, self.activate = spec.features, ACTIVATIONS[spec.activation]
        self.keys: tf.Tensor | None = None
        self.behind = [behind(spec, layer) for layer in range(spec.layers - 1)]
        self.training, self.norms = True, dict[int, Within]()
        self.layers = []
        for layer in range(spec.layers):
            self.layers.append(Linear(variable, name := f"layers/{layer}", bias=f"{name}/bias" in spec.params()))
            if (norm := within(spec, variable, f"{name}/norm")) is not None:
                self.norms[layer] = norm

    def segments(self) -> dict[str, SegmentFunction]:
        """Makes one segment per layer."""
        given = self.keys, self.training
        return {f"layers/{i}": functools.partial(self._layer, i, *given) for i in range(len(self.layers))}

    def _layer(self, i: int, keys: tf.Tensor | None, training: bool, x: tf.Tensor) -> tf.Tensor:
        x = self.layers[i](x)
        x = self.norms[i](x, training) if i in self.norms else x
        return self.behind[i](self.activate(x), keys) if i + 1 < len(self.layers) else x

    def __call__(self, x: Inputs) -> tf.Tensor:
        """Flattens its input, then runs all segments in order."""
        x, self.keys = without_keys(x)
        return run_segments(self.segments().values(), tf.reshape(x, (-1, self.features)))
