"""The variables of a user's model by neutral name: what is trained, what is frozen, and what is kept beside it."""

from typing import Any

import tensorflow as tf

Variables = dict[str, tf.Variable]


def named_variables(model: Any) -> tuple[Variables, frozenset[str], Variables]:
    """Names the variables of a model by their path in it, in the order in which they were made.

    Args:
        model: A Keras model, or a tf.Module.

    Returns:
        The parameters, the names of those that are frozen, and the buffers.
    """
    import keras  # here: our own models do without it

    if not isinstance(model, keras.Model):
        made = {v.name.partition(":")[0]: v for v in model.variables}
        trained = {name: v for name, v in made.items() if v.trainable}
        return trained, frozenset(), {name: v for name, v in made.items() if not v.trainable}
    every, prefix = model.variables, f"{model.name}/"
    made_to_train = {id(v) for layer in model._flatten_layers() for v in layer._trainable_variables}
    params = {v.path.removeprefix(prefix): v for v in every if v.trainable or id(v) in made_to_train}
    others = [v for v in model.non_trainable_variables if id(v) not in made_to_train]
    frozen = frozenset(name for name, v in params.items() if not v.trainable)
    return (
        {name: v.value for name, v in params.items()},
        frozen,
        {v.path.removeprefix(prefix): v.value for v in others},
    )
