"""Applies the features of a model for models, programs and descriptions; no other module names a single feature."""

from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

from samestep.common.features import Features
from samestep.tf_impl.features import batch_norm, dropout
from samestep.tf_impl.features.batch_norm import BUFFER_ROLES, freeze, norms_of
from samestep.tf_impl.features.batch_norm import batch_norm as within
from samestep.tf_impl.features.dropout import dropout as behind
from samestep.tf_impl.features.dropout import dropped_by, held_still, prepare
from samestep.tf_impl.features.experts import with_balance

__all__ = [
    "BUFFER_ROLES",
    "behind",
    "dropped_by",
    "freeze",
    "held_still",
    "layers_of",
    "norms_of",
    "prepare",
    "switch_layers",
    "with_balance",
    "within",
]

Within = batch_norm.BatchNorm
"""A layer that a feature adds after the product of another one."""


def switch_layers(layers: Sequence[Any], features: Features, running: Sequence[tf.Variable]) -> None:
    """Switches off the layers of a user's model whose effect depends on how the batch is split.

    Args:
        layers: All layers of the model.
        features: The request.
        running: Other variables that training updates.
    """
    dropout.switch(layers, features)
    batch_norm.switch(layers, features, running)


def layers_of(layers: Iterable[Any]) -> dict[str, tuple[str, ...]]:
    """Returns the layers of a user's model that have a feature which depends on how a batch is split, by feature."""
    return {"batch_norm": tuple(layer.name for layer in norms_of(layers))}
