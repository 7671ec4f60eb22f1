"""How the replicas of a strategy hold parameters and optimizer state: each holds everything, unless an axis divides it."""

from collections.abc import Collection, Sequence
from typing import Protocol

import numpy as np
import tensorflow as tf

from samestep.tf_impl.weights import make_variable


class Holding(Protocol):
    """How variables are made, read and written, and how the gradients of divided parameters are summed.

    Attributes:
        divided: The names of the parameters of which replicas hold parts, whose gradients the strategy does not sum.
    """

    divided: Collection[str]

    def make(self, value: np.ndarray, name: str) -> tf.Variable:
        """Makes a variable in the strategy's scope.

        Args:
            value: The whole initial value.
            name: The neutral name.
        """

    def write(self, variable: tf.Variable, value: np.ndarray) -> None:
        """Assigns a whole value.

        Args:
            variable: The variable.
            value: The value.
        """

    def read(self, variable: tf.Variable) -> np.ndarray:
        """Returns a whole value."""

    def sum_divided(self, gradients: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Sums the gradients of divided parameters over the replicas that have the same parts; must be called on each replica.

        Args:
            gradients: The gradients of all parameters, by name.

        Returns:
            The gradients in the same order.
        """

    def sum_squares(self, names: Sequence[str], squares: Sequence[tf.Tensor]) -> tf.Tensor:
        """Adds up the squares of a whole gradient; must be called on each replica.

        Args:
            names: The names of the parameters.
            squares: The sum of squares of what a replica has of each parameter's gradient.
        """


class Whole:
    """Every replica holds all of every parameter."""

    divided: Collection[str] = ()

    def make(self, value: np.ndarray, name: str) -> tf.Variable:
        """Makes a variable; see `Holding`."""
        return make_variable(value, name)

    def write(self, variable: tf.Variable, value: np.ndarray) -> None:
        """Assigns a value, see `Holding`."""
        variable.assign(value)

    def read(self, variable: tf.Variable) -> np.ndarray:
        """Returns a value, see `Holding`."""
        return variable.numpy()

    def sum_divided(self, gradients: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Returns the gradients, none of which is divided."""
        return gradients

    def sum_squares(self, names: Sequence[str], squares: Sequence[tf.Tensor]) -> tf.Tensor:
        """Adds up squares, see `Holding`."""
        return tf.add_n(squares)
