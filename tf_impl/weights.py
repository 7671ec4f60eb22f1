"""Neutral names <-> TensorFlow's variables. The layouts are the same."""

from collections.abc import Callable, Iterable, Mapping

import numpy as np
import tensorflow as tf


def make_variable(value: np.ndarray, name: str) -> tf.Variable:
    """A variable, wherever the scope of a strategy puts it."""
    return tf.Variable(value, name=name.replace("/", "_"))


class NamedVariables:
    """A variable factory that remembers what it made, by neutral name."""

    def __init__(
        self,
        values: Mapping[str, np.ndarray],
        dtype: str,
        make: Callable[[np.ndarray, str], tf.Variable] = make_variable,
        lookup: Callable[[tf.Variable, tf.Tensor], tf.Tensor] = tf.gather,
    ) -> None:
        """Makes nothing yet.

        Args:
            values: Initial values by neutral name.
            dtype: Of the variables.
            make: Makes a variable out of its initial value and its neutral name.
            lookup: Gathers rows [..., columns] of a table by ids [...], wherever the table is.
        """
        self._values, self._dtype, self._make = values, dtype, make
        self.lookup = lookup
        self.by_name: dict[str, tf.Variable] = {}

    def __call__(self, name: str) -> tf.Variable:
        """Makes the variable of a name."""
        self.by_name[name] = self._make(self._values[name].astype(self._dtype), name)
        return self.by_name[name]


def zeros_like(variables: Mapping[str, tf.Variable]) -> dict[str, tf.Variable]:
    """One slot, zero, of every variable; call it in the same scope."""
    return {name: tf.Variable(tf.zeros(v.shape, v.dtype), trainable=False) for name, v in variables.items()}


def nbytes(values: Iterable[tf.Variable | tf.Tensor]) -> int:
    """Their bytes, from shapes and dtypes."""
    return sum(value.shape.num_elements() * value.dtype.size for value in values)
