"""Variables whose rows are on several servers."""

import itertools
from collections.abc import Mapping

import numpy as np
import tensorflow as tf


def parts_of(variable: tf.Variable) -> list[tf.Variable]:
    """Returns the parts of a variable, in order; one that is not cut is its own part."""
    return [variable] if isinstance(variable, tf.Variable) else list(variable.variables)


def flat(by_name: Mapping[str, list[tf.Variable]]) -> list[tf.Variable]:
    """Returns the parts of all variables, in order."""
    return list(itertools.chain.from_iterable(by_name.values()))


def lookup(table: tf.Variable, ids: tf.Tensor) -> tf.Tensor:
    """Gathers rows on each server; only these rows are sent, and only their gradients.

    Args:
        table: The table, whole or in parts.
        ids: The ids of the rows.
    """
    if isinstance(table, tf.Variable):
        return tf.gather(table, ids)
    rows = tf.nn.embedding_lookup(table, tf.reshape(ids, [-1]))  # a ShardedVariable takes ids of one dim
    return tf.reshape(rows, [*ids.shape, table.shape[-1]])


def assign(parts: list[tf.Variable], value: np.ndarray) -> None:
    """Assigns each part its rows.

    Args:
        parts: The parts of one variable, in order.
        value: The full value.
    """
    ends = np.cumsum([part.shape[0] for part in parts])[:-1]
    for part, shard in zip(parts, np.split(value, ends), strict=True):
        part.assign(shard)
