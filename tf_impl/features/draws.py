"""Replaces each random draw of a user's forward pass by its mean, which does not depend on the seed or the shard.

Dropout then returns its input. The functions of TensorFlow that draw, which Keras' call, are replaced. Draws elsewhere, as in
NumPy, are not.
"""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from samestep.common.workload.draws import Still

Replace = Callable[[tf.Tensor, Mapping[str, Any]], tf.Tensor]
"""(what was drawn, the arguments by name) -> what is returned instead."""


def _instead(replace: Replace) -> Still:
    def still(plain: Callable[..., tf.Tensor], *args: Any, **named: Any) -> tf.Tensor:
        given = inspect.signature(plain).bind(*args, **named)
        given.apply_defaults()
        return replace(plain(*args, **named), given.arguments)

    return still


def _filled(made: tf.Tensor, value: Any) -> tf.Tensor:
    return tf.zeros_like(made) + tf.cast(value, made.dtype)


def _mean(made: tf.Tensor, given: Mapping[str, Any]) -> tf.Tensor:
    return _filled(made, given["mean"])


def _passed_on(made: tf.Tensor, given: Mapping[str, Any]) -> tf.Tensor:
    return tf.convert_to_tensor(given["x"])


def _in_order(made: tf.Tensor, given: Mapping[str, Any]) -> tf.Tensor:
    return tf.convert_to_tensor(given["value"])


def _likeliest(made: tf.Tensor, given: Mapping[str, Any]) -> tf.Tensor:
    return _filled(made, tf.argmax(given["logits"], -1)[:, None])


def _middle(made: tf.Tensor, given: Mapping[str, Any]) -> tf.Tensor:
    low, high = given["minval"], 1 if given["maxval"] is None else given["maxval"]
    return _filled(made, (low + high - 1) // 2 if made.dtype.is_integer else (low + high) / 2)


def _of_gamma(made: tf.Tensor, given: Mapping[str, Any]) -> tf.Tensor:
    return _filled(made, given["alpha"] / (1.0 if given["beta"] is None else given["beta"]))


def _of_poisson(made: tf.Tensor, given: Mapping[str, Any]) -> tf.Tensor:
    return _filled(made, given["lam"])


def _of_binomial(made: tf.Tensor, given: Mapping[str, Any]) -> tf.Tensor:
    return _filled(made, tf.cast(given["counts"], made.dtype) * tf.cast(given["probs"], made.dtype))


_REPLACED: Mapping[tuple[Any, str], Replace] = {
    (tf.nn, "dropout"): _passed_on,
    (tf.nn.experimental, "stateless_dropout"): _passed_on,
    (tf.random, "normal truncated_normal stateless_normal stateless_truncated_normal"): _mean,
    (tf.random, "uniform stateless_uniform"): _middle,
    (tf.random, "categorical stateless_categorical"): _likeliest,
    (tf.random, "shuffle"): _in_order,
    (tf.random.experimental, "stateless_shuffle"): _in_order,
    (tf.random, "gamma stateless_gamma"): _of_gamma,
    (tf.random, "poisson"): _of_poisson,
    (tf.random, "stateless_binomial"): _of_binomial,
    (tf.random.Generator, "normal truncated_normal"): _mean,
    (tf.random.Generator, "uniform"): _middle,
    (tf.random.Generator, "binomial"): _of_binomial,
}

STILL: Mapping[tuple[Any, str], Still] = {where: _instead(replace) for where, replace in _REPLACED.items()}
"""The module in which a function is looked up, and its names -> what it returns instead of a draw."""
