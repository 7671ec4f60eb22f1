"""What a Keras model adds to the loss of its targets: regularizers, losses of activities, and `add_loss`."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from samestep.tf_impl.models.inputs import Inputs
from samestep.tf_impl.upstream import losses_of, separate_losses

_ROUNDING = 1e-9
"""How far two means of float64 numbers may be apart, relative."""


class Added:
    """The losses of regularizers on the weights of a Keras model, and those that its layers add when they are called."""

    def __init__(self, model: Any) -> None:
        """Separates the losses that different replicas add.

        Args:
            model: A Keras model that has been called; None adds nothing.
        """
        self._model = model
        self._layers: list[Any] = [] if model is None else list(model._flatten_layers())
        separate_losses(self._layers)

    def total(self, dtype: tf.DType) -> tf.Tensor | None:
        """Returns the sum of all added losses, including those of the last call in this thread; None if there are none.

        Args:
            dtype: The dtype of the sum, since a layer that computes in two bytes adds a number of two bytes.
        """
        found = self._model.losses if self._layers else ()
        return tf.add_n([tf.reduce_sum(tf.cast(loss, dtype)) for loss in found]) if found else None

    def by_name(self) -> dict[str, float]:
        """Returns the value of each added loss after the last call, by name; works outside of functions only."""
        found = {}
        for layer in self._layers:
            if own := losses_of(layer):
                name, regularizer = f"`{self._path(layer)}`", layer.activity_regularizer
                words = (
                    f"what {name} adds" if regularizer is None else f"{_words(regularizer)} on the outputs of {name}"
                )
                found[words] = _sum(own)
        for variable in self._model.trainable_variables if self._layers else ():
            if variable.regularizer is not None:
                name = variable.path.removeprefix(f"{self._model.name}/")
                found[f"{_words(variable.regularizer)} on `{name}`"] = _sum([variable.regularizer(variable)])
        return found

    def sums(self, call: Callable[[Inputs], object], inputs: Inputs) -> tuple[str, ...]:
        """Returns the layers that add something other than a mean over examples, which differs on shards of a batch.

        Args:
            call: Calls the model, with random draws that are held still.
            inputs: An even number of examples.
        """
        count = len(tf.nest.flatten(inputs)[0])
        cuts = (slice(None), slice(count // 2), slice(count // 2, None))
        seen = []
        for cut in cuts:
            call(tf.nest.map_structure(lambda array, cut=cut: array[cut], inputs))
            seen.append([_sum(losses_of(layer)) for layer in self._layers])
        whole, mean = np.array(seen[0]), np.mean(seen[1:], axis=0)
        is_off = np.abs(whole - mean) > _ROUNDING * np.maximum(np.abs(whole), np.abs(mean))
        return tuple(self._path(layer) for layer, off in zip(self._layers, is_off, strict=True) if off)

    def _path(self, layer: Any) -> str:
        from samestep.tf_impl import tracing  # here: it imports Keras, which our own models do without

        return tracing.path_of(layer, self._model)


def _sum(losses: list[tf.Tensor]) -> float:
    return float(np.sum([np.sum(loss) for loss in losses]))


def _words(regularizer: Any) -> str:
    """Returns a regularizer in words, as in "L2 of 0.5", or the name of the user's function."""
    factors = {name: getattr(regularizer, name, None) for name in ("l1", "l2")}
    said = [f"{name.upper()} of {float(factor):g}" for name, factor in factors.items() if factor]
    return " and ".join(said) or getattr(regularizer, "__name__", type(regularizer).__name__)
