"""Refuses layers of Keras with which a user's model would be another function in every run."""

from collections.abc import Iterable
from typing import Any

from samestep.common.errors import ConfigError
from samestep.tf_impl.plain_variables import plain_variables


def refuse_layers(source: str, layers: Iterable[Any]) -> None:
    """Refuses layers that keep a state between batches, and variables to train that Keras does not know of.

    Args:
        source: Where the model is declared, for messages.
        layers: The model and all of its layers.

    Raises:
        ConfigError: There is such a layer or variable.
    """
    import keras  # here: our own models do without it

    for layer in layers:
        if isinstance(layer, keras.layers.RNN) and layer.stateful:
            raise ConfigError(
                f"--model {source}: the {type(layer).__name__} `{layer.name}` is stateful: what it keeps of one batch goes "
                f"into the next, so no batch could be split; give stateful=False, or hand the state in as an input."
            )
        for name, _ in plain_variables(layer):
            raise ConfigError(
                f"--model {source}: Keras trains and saves no tf.Variable, as {type(layer).__name__} has in `{name}`; make "
                f"it with self.add_weight(), or give trainable=False if it is a constant."
            )
