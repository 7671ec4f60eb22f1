"""The layers that torch has and TensorFlow has only in Keras, whose variables DTensor cannot hold."""

import math
from collections.abc import Callable

import tensorflow as tf

from samestep.common.features import Features
from samestep.common.workload.models.transformer import NORM_EPSILON

Lookup = Callable[[tf.Variable, tf.Tensor], tf.Tensor]
"""Gathers rows [..., columns] of a table by ids [...], wherever the table is."""


class Product:
    """Multiplies in two bytes if the run asks for it: both factors are cast, and the result is cast back."""

    def __init__(self, dtype: tf.DType | None) -> None:
        """Keeps the type.

        Args:
            dtype: What to multiply in; None stands for the factors' own.
        """
        self._dtype = dtype

    def __call__(
        self, multiply: Callable[..., tf.Tensor], one: tf.Tensor, other: tf.Tensor | tf.Variable, **how: object
    ) -> tf.Tensor:
        """Multiplies two tensors.

        Args:
            multiply: The kind of product.
            one: The first factor, which the result has the type of.
            other: The second factor.
            **how: Further arguments of `multiply`.
        """
        if self._dtype is None:
            return multiply(one, other, **how)
        return tf.cast(multiply(tf.cast(one, self._dtype), tf.cast(other, self._dtype), **how), one.dtype)


class VariableFactory:
    """What a run decides about the variables of a model: how they are made, how tables are read, how they are multiplied."""

    def __init__(
        self,
        make: Callable[[str], tf.Variable],
        product: Product,
        lookup: Lookup = tf.gather,
        buffer: Callable[[str], tf.Variable] | None = None,
        features: Features | None = None,
    ) -> None:
        """Keeps the decisions.

        Args:
            make: Makes the variable of a neutral name, holding its initial value.
            product: Multiplies with kernels.
            lookup: Looks up rows of the tables.
            buffer: Makes the variable of a buffer; by default like that of a parameter.
            features: The features that a run switches; none by default.
        """
        self._make, self.product, self.lookup = make, product, lookup
        self.buffer, self.features = buffer or make, features or Features()
        self.by_name: dict[str, tf.Variable] = {}

    def __call__(self, name: str) -> tf.Variable:
        """Makes the variable of a neutral name, and remembers it."""
        self.by_name[name] = self._make(name)
        return self.by_name[name]


class Linear:
    """A linear layer on the last dimension: x @ kernel + bias."""

    def __init__(self, variable: VariableFactory, name: str, bias: bool = True) -> None:
        self.kernel = variable(f"{name}/kernel")
        self.bias = variable(f"{name}/bias") if bias else None
        self.product = variable.product

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        """Multiplies with the kernel and adds the bias: [..., in] -> [..., out]."""
        y = (
            self.product(tf.tensordot, x, self.kernel, axes=1)
            if x.shape.rank > 2
            else self.product(tf.matmul, x, self.kernel)
        )
        return y if self.bias is None else y + self.bias


class Convolution:
    """A 3x3 convolution with stride 1 and same padding, on [batch, height, width, channels]."""

    def __init__(self, variable: VariableFactory, name: str, bias: bool = True) -> None:
        self.kernel = variable(f"{name}/kernel")
        self.bias = variable(f"{name}/bias") if bias else None
        self.product = variable.product

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        """Convolves: [batch, height, width, in] -> [batch, height, width, out]."""
        y = self.product(tf.nn.conv2d, x, self.kernel, strides=1, padding="SAME")
        return y if self.bias is None else y + self.bias


class Norm:
    """Layer normalization over the last dimension, with the biased variance."""

    def __init__(self, variable: VariableFactory, name: str) -> None:
        self.scale = variable(f"{name}/scale")
        self.bias = variable(f"{name}/bias")

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        """Returns (x - mean) / sqrt(variance + epsilon) * scale + bias."""
        centred = x - tf.reduce_mean(x, axis=-1, keepdims=True)
        variance = tf.reduce_mean(centred * centred, axis=-1, keepdims=True)
        return centred * tf.math.rsqrt(variance + NORM_EPSILON) * self.scale + self.bias


class RootNorm:
    """Divides by the root of the mean square over the last dimension (RMSNorm)."""

    def __init__(self, variable: VariableFactory, name: str) -> None:
        self.scale = variable(f"{name}/scale")

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        """Returns x / sqrt(mean of its squares + epsilon) * scale."""
        return x * tf.math.rsqrt(tf.reduce_mean(x * x, axis=-1, keepdims=True) + NORM_EPSILON) * self.scale


class Table:
    """A table whose rows are looked up by id."""

    def __init__(self, variable: VariableFactory, name: str) -> None:
        self.table = variable(f"{name}/table")
        self.lookup = variable.lookup

    def __call__(self, ids: tf.Tensor) -> tf.Tensor:
        """Looks up rows: ids [...] -> [..., width]."""
        return self.lookup(self.table, ids)


def average_pool(x: tf.Tensor) -> tf.Tensor:
    """Averages 2x2 windows with stride 2, on [batch, height, width, channels].

    It reshapes, because DTensor (tensorflow 2.21) has no layout for the gradient of tf.nn.avg_pool2d.
    """
    _, height, width, channels = x.shape
    return tf.reduce_mean(tf.reshape(x, (-1, height // 2, 2, width // 2, 2, channels)), axis=(2, 4))


def max_pool(x: tf.Tensor) -> tf.Tensor:
    """Takes the maximum of 2x2 windows with stride 2; of equal elements the first gets the gradient, as tf.maximum has it."""
    _, height, width, channels = x.shape
    rows = tf.reshape(x, (-1, height // 2, 2, width // 2, 2, channels))
    (a, b), (c, d) = (tf.unstack(row, axis=3) for row in tf.unstack(rows, axis=2))
    return tf.maximum(tf.maximum(a, b), tf.maximum(c, d))


POOLINGS = {"average": average_pool, "max": max_pool}


def gelu(x: tf.Tensor) -> tf.Tensor:
    """Returns x * Phi(x). Written by hand, because tf.nn.gelu keeps its constants in float32 even in a float64 run."""
    return 0.5 * x * (1 + tf.math.erf(x * (1 / math.sqrt(2))))


ACTIVATIONS = {"gelu": gelu, "relu": tf.nn.relu}
